"""Configurations, and the command lines made of them. The only user of Hydra."""

from arflow_eval.compose.book import Application, Arrange, compose, conf_dir, valid
from arflow_eval.compose.command_line import application
from arflow_eval.compose.targets import call_target, load_panel

__all__ = [
    "Application",
    "Arrange",
    "application",
    "call_target",
    "compose",
    "conf_dir",
    "load_panel",
    "valid",
]
