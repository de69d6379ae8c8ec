"""The wire: messages between a holdfast server and its clients, and the remote registry."""
