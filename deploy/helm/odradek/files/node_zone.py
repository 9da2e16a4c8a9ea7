"""Write the value of a label of this pod's node to a file, for broker.rack. An init container of the chart runs it.

Arguments: the label, the file. Environment: ODRADEK_NODE_NAME. Ends with 1 and one line if the node has no such label, or if it
cannot read the node.
"""

import json
import os
import ssl
import sys
import urllib.error
import urllib.request
from pathlib import Path

ACCOUNT = Path(os.environ.get("ODRADEK_SERVICE_ACCOUNT", "/var/run/secrets/kubernetes.io/serviceaccount"))
TIMEOUT_S = 10


def label_of(node: str, label: str) -> str:
    """The value of the label. Raises OSError, LookupError."""
    host = os.environ["KUBERNETES_SERVICE_HOST"]
    address = f"[{host}]" if ":" in host else host
    url = f"https://{address}:{os.environ['KUBERNETES_SERVICE_PORT']}/api/v1/nodes/{node}"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}"})
    context = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=context) as response:
        labels = json.load(response)["metadata"].get("labels", {})
    if label not in labels:
        raise LookupError(
            f"the node {node} has no label {label}: set the value rack.label of the chart, or rack.from=none"
        )
    return str(labels[label])


def main(label: str, file: str) -> str | None:
    """Write the file. Returns a line that says why it could not."""
    node = os.environ["ODRADEK_NODE_NAME"]
    try:
        Path(file).write_text(label_of(node, label))
    except LookupError as error:
        return str(error.args[0])
    except OSError as error:
        return f"cannot read the node {node}: {error}"
    return None


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
