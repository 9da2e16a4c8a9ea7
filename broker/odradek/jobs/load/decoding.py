"""Decodes values: adds a column with what the value says, and keeps the value as it is. Runs in the driver; Spark decodes
JSON, and the tasks that write the files decode Avro.

A value that cannot be decoded is loaded like any other: `decoded` is null, `decode_error` says why, and the commit counts it.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.jobs.load.errors import INSTALL, LoadError
from odradek.jobs.load.files import DECODED, ERROR
from odradek.jobs.load.registry import NotInRegistryError, Registry, UnusableSchemaError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from odradek.jobs.load.files import TaskDecoder

RAW, JSON, AVRO = "raw", "json", "avro"
KINDS = (RAW, JSON, AVRO)
_CORRUPT = "_corrupt_record"
_LONGEST_FILE = 1 << 20


@dataclass(frozen=True)
class Decoding:
    """How values are decoded.

    :param kind: one of `KINDS`. :param schema: of JSON values, as Spark's DDL or JSON; of Avro values, the reader schema
    :param registry: of Avro values. :param subject: the subject of the registry whose schema it is
    """

    kind: str = RAW
    schema: str = ""
    registry: Registry | None = None
    subject: str | None = None

    @property
    def text(self) -> str:
        """The text that the head of a version keeps."""
        if self.kind == RAW:
            return self.kind
        return f"{self.kind} {'' if self.subject is None else _subject_mark(self.subject)}{self.schema}"

    def in_tasks(self) -> "TaskDecoder | None":
        """What decodes in the tasks that write the files; None if Spark decodes, or nothing does."""
        if self.registry is None:
            return None
        from odradek.jobs.load.avro import AvroDecoder

        return AvroDecoder(self.registry, self.schema)

    def applied(self, frame: "DataFrame") -> "DataFrame":
        """The frame with `decoded` and `decode_error`, or as it is. Raises LoadError if Spark does not accept the schema."""
        if self.kind != JSON:
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


def decoding_of(kind: str, schema: str | None, registry: Registry | None = None, before: str | None = None) -> Decoding:
    """The decoding that the options describe.

    :param schema: the text of a schema, or the name of a file with it; for Avro, a file or a subject of the registry
    :param before: the `Decoding.text` of earlier runs into the version: the schema of a subject stays as it was in the first
    :raises LoadError: the options contradict each other, the file cannot be read, or the registry does not have the schema
    """
    if (kind == AVRO) != (registry is not None):
        wrong = (
            "--value avro needs --registry URL"
            if kind == AVRO
            else f"--registry needs --value avro, and --value is {kind}"
        )
        raise LoadError(wrong)
    if kind == RAW and schema is not None:
        raise LoadError("--schema needs --value json or avro, and --value is raw")
    if kind == JSON and schema is None:
        raise LoadError("--value json needs --schema: columns such as 'id bigint, name string', or a file with them")
    if kind == AVRO and schema is None:
        raise LoadError("--value avro needs --schema: a file with a schema in Avro, or a subject of the registry")
    if schema is None:
        return Decoding()
    text = _in_file(schema)
    if registry is not None:
        return _avro(schema, text, registry, before)
    return Decoding(kind, " ".join((schema if text is None else text).split()))


def _in_file(schema: str) -> str | None:
    """The text of a file; None if there is none of that name. Raises LoadError."""
    path = Path(schema)
    try:
        return path.read_bytes()[:_LONGEST_FILE].decode() if path.is_file() else None
    except (OSError, UnicodeDecodeError) as error:
        raise LoadError(f"--schema {path}: cannot be read: {error}") from None


def _subject_mark(subject: str) -> str:
    return f"subject {subject}: "


def _avro(named: str, text: str | None, registry: Registry, before: str | None) -> Decoding:
    from odradek.jobs.load.registry import RegisteredSchema

    try:
        from odradek.jobs.load import avro
    except ImportError as error:
        raise LoadError(f"--value avro: a Python package is missing ({error}): {INSTALL}") from None
    registry.check()
    subject = None if text is not None else named
    mark = f"{AVRO} {_subject_mark(named)}"
    if subject is not None and before is not None and before.startswith(mark):
        return Decoding(AVRO, before.removeprefix(mark), registry, subject)
    try:
        found = registry.newest(named) if text is None else RegisteredSchema(AVRO.upper(), text)
    except UnusableSchemaError as error:
        raise LoadError(f"--schema {named}: {error}") from None
    except NotInRegistryError:
        raise LoadError(
            f"--schema {named}: is no file, and the schema registry {registry.url} has no such subject"
        ) from None
    try:
        schema = json.dumps(avro.standalone(found), sort_keys=True, separators=(",", ":"))
        avro.reader_schema(schema)
    except LoadError as error:
        raise LoadError(f"--schema {named}: {error}") from None
    return Decoding(AVRO, schema, registry, subject)
