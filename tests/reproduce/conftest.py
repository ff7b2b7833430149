"""Fixtures of these tests."""

from tests.reproduce.repository import project as project
