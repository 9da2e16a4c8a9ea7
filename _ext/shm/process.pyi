from typing import TypedDict


class ProgramHeader(TypedDict):
    p_type: int
    p_flags: int
    p_vaddr: int
    p_memsz: int

class DynamicValue(TypedDict, total=False):
    d_val: int

class DynamicEntry(TypedDict):
    d_tag: int
    d_un: DynamicValue

class LoadedObject(TypedDict):
    dlpi_addr: int
    dlpi_phdr: ProgramHeader
    dlpi_phnum: int

def die_with_parent(number: int, parent: int) -> bool: ...
def set_name(name: bytes) -> None: ...
def set_signals(default, ignored, mask) -> None: ...
def release_start_pages(loop=None) -> None: ...
