from typing_extensions import TypeAlias

from odradek._ext.shm.faults import *

AppendResult: TypeAlias = int
