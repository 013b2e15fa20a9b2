#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The Kubernetes manifests and the container file, as far as they can be checked without a cluster:
names that must agree do, the node's script makes a command line that the daemon takes, probes leave
the command its own time, the key file is where the configuration looks for it, there and under
systemd. manifests.py GRADWIRED GRADWIRE."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

try:
    import yaml
except ImportError:
    print("skipped: python3-yaml is not installed")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
GRADWIRED, GRADWIRE = sys.argv[1:3]


def run(*words, **options):
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, **options)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def manifests():
    with open(ROOT / "config/kubernetes/gradwired.yaml") as file:
        documents = list(yaml.safe_load_all(file))
    assert all(d["apiVersion"] and d["metadata"]["name"] for d in documents)
    return {(d["kind"], d["metadata"]["name"]): d for d in documents}


def check_references(all_of_them):
    """What one object names, another has."""
    daemons = all_of_them["DaemonSet", "gradwired"]
    template = daemons["spec"]["template"]
    wanted = daemons["spec"]["selector"]["matchLabels"]
    assert wanted.items() <= template["metadata"]["labels"].items()
    pod = template["spec"]
    (container,) = pod["containers"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
    namespace = daemons["metadata"]["namespace"]
    assert ("Namespace", namespace) in all_of_them
    config = all_of_them["ConfigMap", volumes["config"]["configMap"]["name"]]
    assert config["metadata"]["namespace"] == namespace
    resources = container["resources"]
    assert resources["requests"] == resources["limits"], "no CPUs of its own without"
    plugin = all_of_them["ConfigMap", "sriovdp-config"]["data"]["config.json"]
    (resource,) = json.loads(plugin)["resourceList"]
    name = f"{resource['resourcePrefix']}/{resource['resourceName']}"
    assert name in resources["limits"], f"{name} is not asked for"
    return container, config["data"], name


def check_probes(container):
    for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
        probe = container[kind]
        program, *words = probe["exec"]["command"]
        assert program == "gradwire", words
        run(GRADWIRE, *words, "--help")
        own = float(words[words.index("--timeout") + 1])
        assert probe.get("timeoutSeconds", 1) > own, f"{kind} ends its command too early"


def check_keys(everything):
    """The key is a secret's file, of a mode that the daemon takes; the lines of [security] that the
    configuration has as comments name files of it."""
    pod = everything["DaemonSet", "gradwired"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (mount,) = (m for m in container["volumeMounts"] if m["name"] == "keys")
    (volume,) = (v for v in pod["volumes"] if v["name"] == "keys")
    assert volume["secret"]["defaultMode"] == 0o400, "the daemon refuses any but 0400 and 0600"
    assert volume["secret"]["optional"], "a cluster without a key has no such secret"
    assert "fsGroup" not in pod.get("securityContext", {}), "it would add the group's bits"
    assert mount["readOnly"] and "subPath" not in mount, "a rotation would not be seen"
    text = everything["ConfigMap", "gradwired"]["data"]["gradwired.toml"]
    check_key_lines(re.sub(r"^# (?=\[security\]|key_file|second)", "", text, flags=re.M),
                    mount["mountPath"], "")


def check_key_lines(text, folder, prefix):
    """With these lines the daemon has the key `cluster.key` of the folder, and `second.key` too if
    that is there. `prefix` is what the folder puts before their names."""
    assert text.count(folder) == 2, text
    with tempfile.TemporaryDirectory() as keys:
        config = pathlib.Path(keys) / "gradwired.toml"
        config.write_text(text.replace(folder, keys))
        for name in ("cluster.key", "second.key"):
            failed = subprocess.run([GRADWIRED, "--check", "--config", str(config)],
                                    capture_output=True, text=True, timeout=60)
            assert (failed.returncode != 0) == (name == "cluster.key"), failed.stderr
            run(GRADWIRE, "key", "make", f"{keys}/{prefix}{name}")
        run(GRADWIRED, "--check", "--config", str(config))
        (pathlib.Path(keys) / f"{prefix}second.key").write_text("no key")
        failed = subprocess.run([GRADWIRED, "--check", "--config", str(config)],
                                capture_output=True, text=True, timeout=60)
        assert failed.returncode != 0 and f"{prefix}second.key" in failed.stderr, failed.stderr


def check_unit():
    """The drop-in for keys says in its comment what gradwired.toml then has."""
    text = (ROOT / "config/systemd/key.conf").read_text()
    credential, _ = re.search(r"^LoadCredential=([^:]+):(/\S+)$", text, re.M).groups()
    lines = re.findall(r"^#   (\[security\]|\w+ = .*)$", text, re.M)
    port = '[[port]]\ndevice = "net_memif0"\nip = "10.10.0.1/24"\n'
    check_key_lines(port + "\n".join(lines) + "\n", "/run/credentials/gradwired.service",
                    f"{credential}_")
    installed = (ROOT / "debian/gradwire.docs").read_text().split()
    assert "config/systemd/key.conf" in installed, "the unit names a drop-in that nobody gets"


def check_start(container, data, resource):
    """start.sh with a stand-in for the daemon, whose arguments the daemon's check then takes."""
    variable = "PCIDEVICE_" + re.sub(r"[./]", "_", resource).upper()
    mine = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder) / "start.sh"
        text = data["start.sh"]
        assert text.count("/usr/bin/gradwired") == 1
        script.write_text(text.replace("/usr/bin/gradwired", "printf '%s\\n'"))
        out = run("sh", str(script), env={"PATH": os.environ["PATH"], "NODE_IP": "192.0.2.37",
                                          variable: "0000:3b:02.1"})
        words = out.split("\n")[:-1]
        eal, own = words[: words.index("--")], words[words.index("--") + 1 :]
        assert eal[eal.index("--lcores") + 1] == f"0@{mine[0]},1@{mine[-1]}", eal
        assert eal[eal.index("-a") + 1] == "0000:3b:02.1", eal
        pages = container["resources"]["limits"]["hugepages-2Mi"]
        assert int(eal[eal.index("-m") + 1]) <= int(pages.removesuffix("Gi")) * 1024, pages
        at = own.index("--config") + 1
        assert pathlib.PurePath(own[at]).name in data, own
        config = pathlib.Path(folder) / "gradwired.toml"
        config.write_text(data["gradwired.toml"])
        own[at] = str(config)
        shown = run(GRADWIRED, "--check", *own)
        assert '"0000:3b:02.1"' in shown and '"10.10.0.37/24"' in shown, shown


def check_container():
    text = (ROOT / "config/container/Containerfile").read_text()
    # Checked by the build itself, which needs a registry: here what it takes from this tree.
    for script in re.findall(r"/src/(\S+)", text):
        assert os.access(ROOT / script, os.X_OK), script
    entry = json.loads(re.search(r"^ENTRYPOINT (.*)$", text, re.M).group(1))
    command = json.loads(re.search(r"^CMD (.*)$", text, re.M).group(1))
    assert entry == ["/usr/bin/gradwired"]
    own = command[command.index("--") + 1 :]
    own[own.index("--config") + 1] = str(ROOT / "config/two-hosts-0.toml")
    run(GRADWIRED, "--check", *own)
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert "build*/" in ignored, "what is built on this host would be taken along"
    assert "**/*.key" in ignored, "a key in this tree would be in the image"


everything = manifests()
found = check_references(everything)
check_probes(found[0])
check_keys(everything)
check_start(*found)
check_unit()
check_container()
print(f"{len(everything)} objects, 3 probes, the script, key files, unit and container file")
