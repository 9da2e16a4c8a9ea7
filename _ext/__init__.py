"""Native modules (Cython), compiled as ``odradek._ext.*``; the ``.pxd`` files are the table of contents."""
