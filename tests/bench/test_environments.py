"""What an environment is made of, without making one."""

from environments import go_module


def test_a_go_program_names_its_modules_and_the_language_of_its_compiler() -> None:
    text = go_module("river", ("example.org/one@v1.2.3", "example.org/one/two@v0.4.0"))

    assert text.startswith("module peers/river\n")
    assert "\ngo 1.27\n" in text
    assert "require example.org/one v1.2.3\nrequire example.org/one/two v0.4.0\n" in text
