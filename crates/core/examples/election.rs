//! Leader election with client-go's rules: two replicas, of which one leads at a time.
//! `cargo run --package belayer-core --example election`.

use std::error::Error;

use belayer_core::{
    ElectionEnded, ElectionSettings, Elector, Leadership, ObjectKey, PatchKind, Request,
    RequestError, Timing, client, election,
};
use belayer_sandbox::Sandbox;
use kube::Client;
use tokio_util::sync::CancellationToken;

fn replica(client: &Client, name: &str) -> (Elector, Leadership) {
    let settings = ElectionSettings {
        lease: ObjectKey::new("default", "my-controller"),
        identity: election::identity(name),
        timing: Timing::default(),
        field_manager: "my-controller",
    };
    Elector::new(client.clone(), settings)
}

/// A write that is not sent, or is cancelled, while another replica may lead.
async fn label(client: &Client, leadership: &Leadership) -> Result<(), RequestError> {
    let path = "/api/v1/namespaces/default";
    let patch = r#"{"metadata":{"labels":{"seen":"true"}}}"#;
    let request = Request::patch(path, PatchKind::Merge, patch);
    leadership.within(request.send(client)).await.map(drop)
}

// The clock is paused so that the example does not wait for the retry period.
#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Box<dyn Error>> {
    let sandbox = Sandbox::default();
    let client = client::in_process(sandbox.service("example"), "example/1.0");
    let ((first, leads), (second, follows)) =
        (replica(&client, "first"), replica(&client, "second"));

    let resign = CancellationToken::new();
    let first = tokio::spawn(first.run(resign.clone()));
    leads.begun().await;
    println!("the first replica leads");
    let stop = CancellationToken::new();
    let second = tokio::spawn(second.run(stop.clone()));
    label(&client, &leads).await?;
    let refused = label(&client, &follows).await;
    println!(
        "the second replica: {}",
        refused.map_or_else(|error| error.to_string(), |()| "wrote".to_owned())
    );

    resign.cancel();
    assert_eq!(first.await?, ElectionEnded::Resigned);
    println!("the first replica released the Lease");
    follows.begun().await;
    println!("the second replica leads");
    label(&client, &follows).await?;
    assert!(label(&client, &leads).await.is_err());
    stop.cancel();
    assert_eq!(second.await?, ElectionEnded::Resigned);
    Ok(())
}
