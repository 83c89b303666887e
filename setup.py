"""Adds the CPU's kernels, compiled, to a wheel; everything else stands in pyproject.toml. Where that fails the wheel
has none, and the app compiles them where it runs."""

import runpy
import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

compile_levels = runpy.run_path(str(Path(__file__).parent / "triforce_core" / "native_build.py"))["compile_levels"]


class Build(build_py):
    def run(self):
        super().run()
        if self.editable_mode:
            return
        try:
            compile_levels(Path(self.build_lib) / "triforce_core" / "kernels" / "ahead")
        except (OSError, subprocess.SubprocessError) as error:
            print(f"no kernels in this wheel: {error}", file=sys.stderr)


class Wheel(bdist_wheel):
    def get_tag(self):
        """Of this system, where it holds kernels."""
        tag, pure = super().get_tag(), self.root_is_pure
        if any(Path(self.bdist_dir).glob("**/kernels/ahead/*")):
            self.root_is_pure = False
            tag = (*tag[:2], super().get_tag()[2])
            self.root_is_pure = pure
        return tag


setup(cmdclass={"build_py": Build, "bdist_wheel": Wheel})
