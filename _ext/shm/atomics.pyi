from typing_extensions import TypeAlias

shared_u64: TypeAlias = int
shared_i64: TypeAlias = int
shared_u32: TypeAlias = int
shared_i32: TypeAlias = int
shared_u16: TypeAlias = int
shared_i16: TypeAlias = int
shared_u8: TypeAlias = int
