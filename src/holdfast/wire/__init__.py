"""The wire: what goes between a holdfast server and whoever speaks to it."""
