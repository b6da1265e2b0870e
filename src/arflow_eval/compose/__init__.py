"""Configurations, and the command lines made of them. The only user of Hydra."""

from arflow_eval.compose.book import Application, compose, conf_dir
from arflow_eval.compose.command_line import application
from arflow_eval.compose.targets import call_target

__all__ = ["Application", "application", "call_target", "compose", "conf_dir"]
