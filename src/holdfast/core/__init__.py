"""The core: values and rules, pure. Start reading here."""
