from typing_extensions import TypeAlias

ApiKey: TypeAlias = int
