#include "reference/torch_module.h"

#include <dlfcn.h>
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <new>

#include "reference/tensors.h"
#include "reference/torch_settings.h"

namespace attnscope::reference {

namespace {

constexpr char kFile[] = "libattnscope_torch.so";
constexpr char kAdvice[] =
    "run ./attnscope, which builds it with what it needs, or leave the references out";

// With less, as `ulimit -v` counts it, OpenBLAS waits for memory without end (1.1 GiB) or a static
// of libtorch ends the program (1.0 GiB); with 1.2 references say that memory is not enough.
constexpr double kGiB = 1 << 30;
constexpr double kAddressSpace = 1.2 * kGiB;

bool on_other_device = false;

// Before the program's first thread, as getenv on another one must not meet it.
[[maybe_unused]] const bool libraries_told = (tell_libraries(), true);

struct Loaded {
  const TorchModule* module = nullptr;
  bool mkl_inside = false;
  std::string problem, advice = kAdvice;
};

// Beside this program; where the build put it, for tests and other programs of the build.
std::string module_file() {
  if (const char* chosen = std::getenv("ATTNSCOPE_TORCH_MODULE")) return chosen;
  std::error_code code;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", code);
  const auto beside = self.parent_path() / kFile;
  if (!code && std::filesystem::exists(beside, code)) return beside.string();
  return ATTNSCOPE_TORCH_MODULE;
}

Loaded open_module() {
  Loaded loaded;
  rlimit space{};
  if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY &&
      static_cast<double>(space.rlim_cur) < kAddressSpace) {
    char problem[128];
    std::snprintf(problem, sizeof(problem),
                  "it needs %.1f GiB of address space, and this process may have %.1f",
                  kAddressSpace / kGiB, static_cast<double>(space.rlim_cur) / kGiB);
    loaded.problem = problem;
    loaded.advice = "raise the limit (ulimit -v), or leave the references out";
    return loaded;
  }
  const std::string file = module_file();
  // Its symbols stay its own: libtorch brings libraries that others have in other versions.
  void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = dlerror();
    // Names the file itself where that is at fault, and a library that it needs otherwise.
    const std::string text = why != nullptr ? why : "unknown reason";
    loaded.problem = text.find(file) == std::string::npos ? file + ": " + text : text;
    return loaded;
  }
  using Entry = const TorchModule* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(handle, kTorchModuleEntry));
  if (entry == nullptr) {
    loaded.problem = file + ": not a module of attnscope";
    return loaded;
  }
  const TorchModule* module = entry();
  if (module->version != kTorchModuleVersion || module->struct_size != sizeof(TorchModule)) {
    loaded.problem = file + ": of another version of attnscope";
    return loaded;
  }
  loaded.module = module;
  loaded.mkl_inside = dlsym(handle, "MKL_Get_Max_Threads") != nullptr;
  return loaded;
}

// Never closed: threads of libtorch live on.
const Loaded& loaded_once() {
  static const Loaded loaded = open_module();
  return loaded;
}

}  // namespace

const TorchModule& torch_module() {
  const Loaded& loaded = loaded_once();
  if (loaded.module == nullptr) {
    throw NoTorch("libtorch does not load: " + loaded.problem + "; " + loaded.advice);
  }
  return *loaded.module;
}

void throw_failure(const TorchFailure& failure) {
  switch (failure.kind) {
    case TorchFailure::kBadInput:
      throw BadInput(failure.message);
    case TorchFailure::kNoDevice:
      throw NoTorch(failure.message);
    case TorchFailure::kNoMemory:
      throw std::bad_alloc();
    default:
      throw std::runtime_error(failure.message);
  }
}

TorchState torch_state() {
  const Loaded& loaded = loaded_once();
  if (loaded.module == nullptr) return {"", loaded.problem, loaded.advice, false};
  return {loaded.module->torch_version, "", "", loaded.mkl_inside};
}

bool beside_host() { return on_other_device; }

void* allocate_host_memory(std::size_t bytes) {
  return on_other_device ? loaded_once().module->allocate_host(bytes) : nullptr;
}

void release_host_memory(void* memory) { loaded_once().module->release_host(memory); }

Result<void> use_device(const std::string& name) {
  if (name == "cpu") return {};
  const Loaded& loaded = loaded_once();
  if (loaded.module == nullptr) {
    return Error{AS_NO_ENVIRONMENT, "libtorch does not load: " + loaded.problem, loaded.advice};
  }
  TorchFailure failure{};
  if (loaded.module->use_device(name.c_str(), &failure)) {
    on_other_device = !name.starts_with("cpu");
    return {};
  }
  if (failure.kind == TorchFailure::kBadInput) return usage_error(failure.message);
  return Error{
      AS_NO_ENVIRONMENT, failure.message,
      "leave --reference-device out, or install a libtorch that has it and run ./attnscope"};
}

}  // namespace attnscope::reference
