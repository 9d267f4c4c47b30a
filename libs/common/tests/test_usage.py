from pydantic import BaseModel, Field, SecretStr
from pydantic_settings import SettingsConfigDict

from tau2eval_common.settings import ServiceSettings
from tau2eval_common.usage import only_help, settings_help


class Inner(BaseModel):
    """Nested.

    Attributes:
        depth: How deep,
            in metres.
    """

    depth: int = 3


class Example(ServiceSettings):
    """An example.

    Attributes:
        folder: Where things go.
    """

    model_config = SettingsConfigDict(env_prefix="TAU2EVAL_EXAMPLE_", env_nested_delimiter="__")

    folder: str = ""
    key: SecretStr = Field(
        default=SecretStr(""), validation_alias="EXAMPLE_KEY", description="Its key."
    )
    inner: Inner = Inner(depth=4)


def test_every_setting_has_its_name_default_and_meaning():
    text = settings_help("python -m example", "Shows.", Example, notes=["The end."])
    lines = text.splitlines()
    for name, default, meaning in [
        ("TAU2EVAL_EXAMPLE_FOLDER", "empty", "Where things go."),
        ("EXAMPLE_KEY", "empty", "Its key."),
        ("TAU2EVAL_EXAMPLE_INNER__DEPTH", "4", "How deep, in metres."),
        ("TAU2EVAL_EXAMPLE_HOST", "127.0.0.1", "Address to listen on."),
    ]:
        at = lines.index(f"  {name}  (default: {default})")
        assert lines[at + 1].strip() == meaning
    assert all(line.strip() for line in lines[6:-2]), "a setting without a meaning"
    assert lines[-1] == "The end."


def test_services_take_help_and_nothing_else(capsys):
    assert only_help([], "x", "text") is None
    assert only_help(["--help"], "x", "text") == 0
    assert capsys.readouterr().out == "text\n"
    assert only_help(["--port", "1"], "x", "text") == 2
    assert "takes no arguments" in capsys.readouterr().err
