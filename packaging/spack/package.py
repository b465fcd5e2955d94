# Lockstep for Spack 1.0 and later: put this file into a repository of your own:
#
#   spack repo create ~/spack-repo site && spack repo add ~/spack-repo/spack_repo/site
#   mkdir -p ~/spack-repo/spack_repo/site/packages/lockstep && cp package.py ~/spack-repo/spack_repo/site/packages/lockstep/
#   spack install --no-checksum lockstep+cuda cuda_arch=90
#
# Spack looks for the tarball of `make dist` in the current folder (manual download).
import os

from spack_repo.builtin.build_systems.cuda import CudaPackage
from spack_repo.builtin.build_systems.makefile import MakefilePackage

from spack.package import *


class Lockstep(MakefilePackage, CudaPackage):
    """An MPI-launched, tensor-parallel runtime for large language models in C17 and CUDA."""

    url = f"file://{os.getcwd()}/lockstep-0.2.0.tar.gz"
    manual_download = True

    license("Apache-2.0")

    version("0.2.0")

    variant("edit", default=True, description="Line editing in lockstep-client chat")

    depends_on("c", type="build")
    depends_on("cxx", type="build", when="+cuda")
    depends_on("gmake", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("mpi")
    depends_on("jansson")
    depends_on("pcre2")
    depends_on("utf8proc")
    depends_on("libzmq+libsodium")
    depends_on("libsodium")
    depends_on("xxhash")
    depends_on("zlib-api")
    depends_on("libedit", when="+edit")
    depends_on("cuda@12.4:", when="+cuda")
    depends_on("nccl@2.28:", when="+cuda")

    conflicts("cuda_arch=none", when="+cuda", msg="name the GPUs: cuda_arch=80,90")

    @property
    def settings(self):
        settings = [
            f"MPICC={self.spec['mpi'].mpicc}",
            f"HOST_CC={spack_cc}",
            f"PREFIX={self.prefix}",
            "EDIT=1" if "+edit" in self.spec else "EDIT=0",
        ]
        if "+cuda" in self.spec:
            # The kernels for Hopper need the features of 90a.
            arch = ["90a" if a == "90" else a for a in self.spec.variants["cuda_arch"].value]
            cuda, nccl = self.spec["cuda"].prefix, self.spec["nccl"].prefix
            settings += [
                "CUDA=1",
                f"CUDA_HOME={cuda}",
                "ARCH=" + " ".join(arch),
                f"CPPFLAGS=-isystem {nccl.include}",
                f"LDFLAGS=-L{nccl.lib}",
            ]
        return settings

    def build(self, spec, prefix):
        make("all", "pages", *self.settings)

    def install(self, spec, prefix):
        make("install", *self.settings)
