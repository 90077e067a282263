"""Adapters for frameworks. Each module needs the framework that it is named after, and no other."""
