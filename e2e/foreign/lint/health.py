"""Runs the health checks of docs/src/install/gitops.md as Argo CD does: each is a Lua function body with `obj`."""

import re
import sys

import lupa

page, crd = (open(path, encoding="utf-8").read() for path in sys.argv[1:])
found = re.findall(r"resource\.customizations\.health\.belayer\.dev_(\w+): \|\n((?:    .*\n|\n)+)", page)
scripts = dict(found)
assert sorted(scripts) == ["Gate", "PodRecreation"], sorted(scripts)


def health(kind, obj):
    lua = lupa.LuaRuntime(register_eval=False)
    check = lua.eval("function(obj)\n" + scripts[kind] + "\nend")
    result = check(lua.table_from(obj, recursive=True))
    return result["status"], result["message"] or ""


def record(phase, generation=1, **conditions):
    listed = [{"type": name, "status": value, "message": "quota"} for name, value in conditions.items()]
    status = {"phase": phase, "observedGeneration": 1, "message": "because", "conditions": listed}
    return {"metadata": {"generation": generation}, "status": status}


expected = {
    "Rejected": "Progressing",
    "Deleting": "Progressing",
    "Waiting": "Progressing",
    "Creating": "Progressing",
    "Recreated": "Progressing",
    "Started": "Healthy",
    "Exhausted": "Degraded",
    "Ended": "Healthy",
}
phases = re.search(r"enum: \[(Rejected, [^\]]+)\]", crd).group(1).split(", ")
assert sorted(phases) == sorted(expected), f"a phase without a case: {phases}"
for phase, status in expected.items():
    seen = health("PodRecreation", record(phase))
    assert seen == (status, "because"), (phase, seen)
assert health("PodRecreation", record("Creating", CreateDenied="True")) == ("Degraded", "quota")
assert health("PodRecreation", record("Creating", CreateDenied="False"))[0] == "Progressing"
assert health("PodRecreation", record("Started", generation=2))[0] == "Progressing"
assert health("PodRecreation", {"metadata": {"generation": 1}})[0] == "Progressing"
assert health("Gate", {"data": {"mode": "draining"}})[0] == "Suspended"
assert health("Gate", {"data": {"mode": "normal"}})[0] == "Healthy"
assert health("Gate", {})[0] == "Healthy"
print(f"{len(expected)} phases")
