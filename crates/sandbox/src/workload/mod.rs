//! A scripted workload in the manner of a workflow engine.
