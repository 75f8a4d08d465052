#include "app/reports/doctor.h"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <CLI/Version.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "engine/capture/capture_pack.h"
#include "kernels/cpu/cpu_lane.h"
#include "kernels/cuda/cuda_lane.h"
#include "reference/torch_module.h"

namespace attnscope {
namespace {

std::string processor() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const auto colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

std::string compiler() {
#if defined(__clang__)
  return fmt::format("clang {}", __clang_version__);
#else
  return fmt::format("g++ {}", __VERSION__);
#endif
}

// The program on PATH, empty when there is none.
std::string on_path(const char* program) {
  const char* path = std::getenv("PATH");
  std::string folders = path != nullptr ? path : "";
  folders += ":/usr/local/cuda/bin";
  for (std::size_t begin = 0; begin <= folders.size();) {
    const std::size_t end = std::min(folders.find(':', begin), folders.size());
    std::string file = folders.substr(begin, end - begin) + "/" + program;
    if (access(file.c_str(), X_OK) == 0) return file;
    begin = end + 1;
  }
  return "";
}

// The BLAS that libtorch has brought into this process.
std::string loaded_blas(bool mkl_inside) {
  std::ifstream maps("/proc/self/maps");
  std::string found;
  for (std::string line; std::getline(maps, line);) {
    const auto slash = line.find('/');
    if (slash == std::string::npos) continue;
    const std::string file = line.substr(slash);
    for (const char* name : {"libopenblas", "openblas-pthread/libblas", "libmkl", "libblas"}) {
      if (file.find(name) == std::string::npos) continue;
      std::error_code error;
      found = std::filesystem::canonical(file, error).string();
      if (found.find("openblas") != std::string::npos) return "OpenBLAS (" + found + ")";
    }
  }
  if (!found.empty()) return found;
  return mkl_inside ? "mkl inside libtorch" : "none loaded";
}

DoctorLine gpu() {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/driver/nvidia/gpus", error)) {
    std::ifstream info(entry.path() / "information");
    for (std::string line; std::getline(info, line);) {
      const auto colon = line.find(':');
      if (line.starts_with("Model") && colon != std::string::npos) {
        const auto begin = line.find_first_not_of(" \t", colon + 1);
        return {"GPU", begin == std::string::npos ? "NVIDIA" : line.substr(begin), "", true};
      }
    }
  }
  return {"GPU", "none", "ops run on the CPU lane", false};
}

DoctorLine display() {
  for (const char* variable : {"WAYLAND_DISPLAY", "DISPLAY"}) {
    const char* value = std::getenv(variable);
    if (value != nullptr && *value != '\0') {
      return {"display", fmt::format("{}={}", variable, value), "", true};
    }
  }
  return {"display", "none", "no window can be opened; headless commands are not affected", false};
}

}  // namespace

std::vector<DoctorLine> examine() {
  std::vector<DoctorLine> lines;
  utsname system{};
  uname(&system);
  lines.push_back({"system",
                   fmt::format("{} {} {}", system.sysname, system.release, system.machine), "",
                   true});
  lines.push_back({"processor",
                   fmt::format("{}, {} threads", processor(), std::thread::hardware_concurrency()),
                   "", true});
  const std::string simd = cpu::simd_level();
  lines.push_back({"SIMD", simd,
                   simd == "generic" ? "CPU kernels run several times slower than with AVX2" : "",
                   simd != "generic"});
  lines.push_back({"compiler", compiler(), "", true});
  lines.push_back({"build", ATTNSCOPE_BUILD_TYPE, "", true});
  const reference::TorchState torch = reference::torch_state();
  const bool loads = torch.problem.empty();
  lines.push_back({"libtorch", loads ? torch.version : "does not load: " + torch.problem,
                   loads ? "" : "no references, so nothing can be compared; " + torch.advice,
                   loads});
  const std::string blas = loaded_blas(torch.mkl_inside);
  const bool fast = blas.find("openblas") != std::string::npos ||
                    blas.find("mkl") != std::string::npos || blas.find("OpenBLAS") == 0;
  lines.push_back({"BLAS", blas,
                   fast || !loads ? ""
                                  : "references run several times slower; install "
                                    "libopenblas0-pthread",
                   fast});
  lines.push_back(
      {"fmt",
       fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100), "",
       true});
  lines.push_back({"CLI11", CLI11_VERSION, "", true});
  lines.push_back({"nlohmann-json",
                   fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR,
                               NLOHMANN_JSON_VERSION_PATCH),
                   "", true});
  const std::string packing = packing_libraries();
  lines.push_back({"packing", packing.empty() ? "missing" : packing,
                   packing.empty() ? "captures cannot be packed for sending" : "",
                   !packing.empty()});
  const std::string nvcc = on_path("nvcc");
  lines.push_back({"nvcc", nvcc.empty() ? "missing" : nvcc,
                   nvcc.empty() ? "CUDA code cannot be built here" : "", !nvcc.empty()});
  lines.push_back(gpu());
  if (const std::string fp8 = cuda::fp8_projections(); !fp8.empty()) {
    lines.push_back({"FP8 products", fp8,
                     fp8 == "cuBLASLt" ? "" : "projections=fp8 runs without the library's kernels",
                     true});
  }
  lines.push_back(display());
  return lines;
}

nlohmann::json describe_machine() {
  return {{"processor", processor()},
          {"threads", std::thread::hardware_concurrency()},
          {"simd", cpu::simd_level()},
          {"compiler", compiler()},
          {"libtorch", ATTNSCOPE_TORCH_VERSION}};
}

}  // namespace attnscope
