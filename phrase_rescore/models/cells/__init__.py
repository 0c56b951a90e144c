"""Recurrent cells. A new one is a file, an entry of ``registry``, a choice of ``train --cell`` and a test of its equations."""
