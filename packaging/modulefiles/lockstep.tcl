#%Module1.0
# Lockstep for Environment Modules: save as MODULEPATH/lockstep/0.2.0 and set `prefix` to the PREFIX of `make install`.
set prefix /opt/lockstep/0.2.0

proc ModulesHelp {} {
    puts stderr "Lockstep runs large language models over MPI, one rank per device: man lockstep."
}
module-whatis "Lockstep 0.2.0: tensor-parallel runtime for large language models"

# The MPI that Lockstep was built with, by your site's name; also CUDA and NCCL for GPUs.
# prereq openmpi/4.1

prepend-path PATH          $prefix/bin
prepend-path XDG_DATA_DIRS $prefix/share
