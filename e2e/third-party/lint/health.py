"""Runs the health checks of docs/src/install/gitops.md as Argo CD does: each is a Lua function body with `obj`."""

import json
import re
import sys

import lupa

*texts, records = sys.argv[1:]
page, crd = (open(path, encoding="utf-8").read() for path in texts)
found = re.findall(r"resource\.customizations\.health\.belayer\.dev_(\w+): \|\n((?:    .*\n|\n)+)", page)
scripts = dict(found)
assert sorted(scripts) == ["Gate", "PodRecreation"], sorted(scripts)


def health(kind, obj):
    lua = lupa.LuaRuntime(register_eval=False)
    check = lua.eval("function(obj)\n" + scripts[kind] + "\nend")
    result = check(lua.table_from(obj, recursive=True))
    return result["status"], result["message"] or ""


with open(records, encoding="utf-8") as file:
    examples = json.load(file)
argo_cd = {"InProgress": "Progressing", "Current": "Healthy", "Failed": "Degraded"}
phases = re.search(r"enum: \[(Rejected, [^\]]+)\]", crd).group(1).split(", ")
assert set(phases) == {example["record"]["status"]["phase"] for example in examples}
for example in examples:
    status, message = health("PodRecreation", example["record"])
    assert status == argo_cd[example["kstatus"]], (example, status)
    denied = example["record"]["metadata"]["name"] == "denied"
    assert message == ("quota" if denied else "because"), (example, message)
assert health("PodRecreation", {"metadata": {"generation": 1}})[0] == "Progressing"
assert health("Gate", {"data": {"mode": "draining"}})[0] == "Suspended"
assert health("Gate", {"data": {"mode": "normal"}})[0] == "Healthy"
assert health("Gate", {})[0] == "Healthy"
print(f"{len(phases)} phases")
