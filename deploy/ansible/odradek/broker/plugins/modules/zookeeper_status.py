#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module: whether a server of ZooKeeper responds, and whether it serves."""

from __future__ import annotations

DOCUMENTATION = r"""
module: zookeeper_status
short_description: Asks a server of ZooKeeper for its state
description:
  - Sends the four-letter word C(srvr) and returns the mode of the server. Changes nothing. Fails if the server does not
    respond, or, with O(serves), if it does not serve clients, as a server of an ensemble without a majority.
options:
  host:
    description: The name or address of the server.
    type: str
    required: true
  port:
    description: The port for clients.
    type: int
    default: 2181
  serves:
    description: Whether the server must serve clients.
    type: bool
    default: false
  timeout:
    description: Seconds to wait for the response.
    type: int
    default: 5
author:
  - The Odradek developers
"""

EXAMPLES = r"""
- name: Wait until the ensemble serves
  odradek.broker.zookeeper_status:
    host: 127.0.0.1
    serves: true
  register: server
  until: server is success
  retries: 60
  delay: 1
"""

RETURN = r"""
mode:
  description: C(leader), C(follower), C(observer), C(standalone), or an empty string if the server does not serve.
  returned: success
  type: str
"""

import socket  # noqa: E402 - Ansible reads the documentation above

from ansible.module_utils.basic import AnsibleModule  # noqa: E402


def ask(host: str, port: int, word: bytes, timeout: int) -> str:
    """Send a four-letter word; return the whole response. Raises OSError."""
    with socket.create_connection((host, port), timeout) as connection:
        connection.sendall(word)
        answer = b""
        while part := connection.recv(4096):
            answer += part
    return answer.decode("utf-8", "replace")


def mode_of(answer: str) -> str:
    """The mode in a response to C(srvr); empty if there is none."""
    return next((line.partition(":")[2].strip() for line in answer.splitlines() if line.startswith("Mode:")), "")


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "required": True},
            "port": {"type": "int", "default": 2181},
            "serves": {"type": "bool", "default": False},
            "timeout": {"type": "int", "default": 5},
        },
        supports_check_mode=True,
    )
    host, port = module.params["host"], module.params["port"]
    try:
        answer = ask(host, port, b"srvr", module.params["timeout"])
    except OSError as error:
        module.fail_json(msg=f"ZooKeeper at {host}:{port} does not respond: {error}")
    mode = mode_of(answer)
    if module.params["serves"] and not mode:
        said = answer.strip()[:200]
        module.fail_json(msg=f"ZooKeeper at {host}:{port} responds, but does not serve clients: {said or 'no answer'}")
    module.exit_json(changed=False, mode=mode)


if __name__ == "__main__":
    main()
