"""Transports between a process and its child: stdio, pipes, the child itself."""
