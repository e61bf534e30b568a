"""Validates objects against the schemas of several versions of Kubernetes: arguments MINOR=FILE."""

import sys

import yaml
from kubernetes_validate import SchemaNotFoundError, ValidationError, validate

# Kinds that no schema of Kubernetes has.
CUSTOM = {"belayer.dev", "monitoring.coreos.com"}
# Kubernetes 1.36 has them; with older servers the manifests are applied without them, and the chart does not render them.
MUTATING = {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"}

wrong = []
for argument in sys.argv[1:]:
    minor, path = argument.split("=", 1)
    skipped, checked = set(), 0
    for one in yaml.load_all(open(path, encoding="utf-8"), Loader=yaml.CSafeLoader):
        if not one:
            continue
        group = one["apiVersion"].rpartition("/")[0]
        name = f"{one['kind']}/{one['metadata']['name']}"
        manifests = path.endswith("manifests.yaml") and int(minor.split(".")[1]) < 36
        if group in CUSTOM or (manifests and one["kind"] in MUTATING):
            skipped.add(one["kind"])
            continue
        try:
            validate(one, minor, strict=True)
            checked += 1
        except ValidationError as error:
            wrong.append(f"{minor}: {name}: {'.'.join(map(str, error.path))}: {error.message}")
        except SchemaNotFoundError as error:
            wrong.append(f"{minor}: {name}: {error.message}")
    print(f"{minor}: {checked} objects of {path.rpartition('/')[2]}, skipped {', '.join(sorted(skipped)) or 'none'}")
    assert checked > 30, f"{path}: {checked} objects"
sys.exit("\n".join(wrong) or 0)
