"""The guards of all APIs, by API key; see `guarded`. `NATIVE_OR_INSIDE` names the APIs that check elsewhere."""
