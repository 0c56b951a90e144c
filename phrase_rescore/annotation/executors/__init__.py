"""Who scores blocks: the threads of this machine (``local``) or the workers of a Dask cluster (``cluster``)."""
