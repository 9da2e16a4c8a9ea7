"""Decodes values: adds a column with what the value says, and keeps the value as it is. Runs in the driver; Spark decodes.

A value that cannot be decoded is loaded like any other: `decoded` is null, `decode_error` says why, and the commit counts it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.jobs.load.errors import LoadError
from odradek.jobs.load.files import ERROR

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

RAW, JSON = "raw", "json"
KINDS = (RAW, JSON)
DECODED = "decoded"
_CORRUPT = "_corrupt_record"
_LONGEST_FILE = 1 << 20


@dataclass(frozen=True)
class Decoding:
    """How values are decoded. :param kind: one of `KINDS`. :param schema: of JSON values, as Spark's DDL or JSON."""

    kind: str = RAW
    schema: str = ""

    @property
    def text(self) -> str:
        """The text that the head of a version keeps."""
        return self.kind if self.kind == RAW else f"{self.kind} {self.schema}"

    def applied(self, frame: "DataFrame") -> "DataFrame":
        """The frame with `decoded` and `decode_error`, or as it is. Raises LoadError if Spark does not accept the schema."""
        if self.kind == RAW:
            return frame
        from pyspark.sql import functions as F
        from pyspark.sql.types import StringType, StructField, StructType

        schema = self._parsed()
        with_corrupt = StructType([*schema.fields, StructField(_CORRUPT, StringType())])
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
        text = F.col("value").cast("string")
        parsed = frame.withColumn(DECODED, F.from_json(text, with_corrupt, options))
        # from_json ignores what follows the object; with more than the object, this is not an array of two elements
        alone = F.json_array_length(F.concat(F.lit("["), text, F.lit(",0]"))).eqNullSafe(2)
        wrong = F.col(DECODED).isNull() | F.col(f"{DECODED}.{_CORRUPT}").isNotNull() | ~alone
        failed = F.col("value").isNotNull() & wrong
        fields = [F.col(f"{DECODED}.`{field.name}`").alias(field.name) for field in schema.fields]
        whole = F.when(F.col("value").isNotNull() & ~F.col("failed"), F.struct(*fields))
        reason = F.when(F.col("failed"), F.lit("the value is not a JSON object of the schema"))
        named = parsed.withColumn("failed", failed).withColumn("whole", whole).withColumn(ERROR, reason)
        return named.drop(DECODED, "failed").withColumnRenamed("whole", DECODED)

    def _parsed(self) -> "StructType":
        from pyspark.errors import PySparkException
        from pyspark.sql.types import StructType

        try:
            if self.schema.lstrip().startswith("{"):
                import json

                schema = StructType.fromJson(json.loads(self.schema))
            else:
                parsed = StructType.fromDDL(self.schema)
                schema = parsed if isinstance(parsed, StructType) else StructType()
        except (PySparkException, ValueError, KeyError, TypeError) as error:
            first = str(error).strip().splitlines()[0]
            raise LoadError(f"--schema {self.schema!r}: Spark does not accept it: {first}") from None
        if not schema.fields or _CORRUPT in schema.names:
            raise LoadError(f"--schema {self.schema!r}: expected at least one column, none of them {_CORRUPT}")
        return schema


def decoding_of(kind: str, schema: str | None) -> Decoding:
    """The decoding that the options describe.

    :param schema: the text of a schema, or the name of a file with it
    :raises LoadError: the options contradict each other, or the file cannot be read
    """
    if (kind == JSON) != (schema is not None):
        raise LoadError(
            "--value json needs --schema: columns such as 'id bigint, name string', or a file with them"
            if kind == JSON
            else f"--schema needs --value json, and --value is {kind}"
        )
    if schema is None:
        return Decoding()
    path = Path(schema)
    try:
        if path.is_file():
            schema = path.read_bytes()[:_LONGEST_FILE].decode()
    except (OSError, UnicodeDecodeError) as error:
        raise LoadError(f"--schema {path}: cannot be read: {error}") from None
    return Decoding(kind, " ".join(schema.split()))
