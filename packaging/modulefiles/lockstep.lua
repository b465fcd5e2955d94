-- Lockstep for Lmod: save as MODULEPATH/lockstep/0.2.0.lua and set `prefix` to the PREFIX of `make install`.
local prefix = "/opt/lockstep/0.2.0"

help([[Lockstep runs large language models over MPI, one rank per device: man lockstep.]])
whatis("Name: Lockstep")
whatis("Version: 0.2.0")
whatis("Description: tensor-parallel runtime for large language models")

-- The MPI that it was built with, by your site's name; CUDA and NCCL for GPUs.
-- depends_on("openmpi/4.1")

prepend_path("PATH", pathJoin(prefix, "bin"))
prepend_path("XDG_DATA_DIRS", pathJoin(prefix, "share"))
