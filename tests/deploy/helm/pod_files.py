"""The files that a broker's pod sees, in a directory of a test: those of the ConfigMap, and of the Secrets that it mounts."""

from __future__ import annotations

import re
from pathlib import Path

from tests import certificates
from tests.deploy.helm import chart

ENVIRONMENT = {"ODRADEK_NODE_ADDRESS": "192.0.2.1", "ODRADEK_RACK": "zone-a"}
"""What the pods get from the downward API."""
PASSWORD = "a password"


def unpack(name: str, directory: Path, **extra: object) -> Path:
    """Write the files of the ConfigMap, and of the Secrets that the pods mount, below `directory`.

    Returns the directory of the files of the ConfigMap.
    """
    found = chart.rendered(name, extra=extra)
    data = chart.only(found, "ConfigMap")["data"]
    pod = chart.only(found, "StatefulSet")["spec"]["template"]["spec"]
    (broker,) = pod["containers"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    certificate = certificates.of_broker()
    key, chain = certificate.private_key_pem.bytes(), certificate.cert_chain_pems[0].bytes()
    secret = {
        "tls.key": key,
        "tls.crt": chain,
        "tls-combined.pem": key + chain,
        "keystore.pem": key + chain,
        "ca.crt": certificates.authority().cert_pem.bytes(),
    }
    for mount in broker["volumeMounts"]:
        place, volume = directory / mount["mountPath"][1:], volumes.get(mount["name"], {})
        place.mkdir(parents=True, exist_ok=True)
        if mount["name"] == "tls":
            for file, content in secret.items():
                (place / file).write_bytes(content)
        elif mount["name"] == "metrics-passwords":
            for item in volume["secret"]["items"]:
                (place / item["path"]).write_text(f"prometheus:{PASSWORD}\n")
        elif "secret" in volume:
            for item in volume["secret"]["items"]:
                (place / item["path"]).write_text(PASSWORD)
        elif mount["name"] == "rack":
            (place / "zone").write_text("zone-b")
    for file, text in data.items():
        (directory / "etc/odradek" / file).write_text(re.sub(r"(/etc/odradek|/run/odradek)/", rf"{directory}\1/", text))
    return directory / "etc/odradek"
