from odradek._ext.shm.faults import *
