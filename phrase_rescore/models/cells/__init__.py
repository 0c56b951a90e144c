"""Recurrent cells. A new one is a file, an entry of ``registry`` and a test of its equations."""
