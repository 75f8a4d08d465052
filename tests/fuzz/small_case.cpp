#include "tests/fuzz/small_case.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "engine/golden/op_inputs.h"
#include "engine/opcase/case_file.h"
#include "engine/opcase/import_case.h"
#include "engine/tensorfile/tensor_writer.h"
#include "kernels/cpu/cpu_lane.h"
#include "tests/fuzz/judge.h"

namespace attnscope::fuzz {
namespace {

OpCase made(as_op_id op) {
  OpInputs inputs(op, {"one", {5}, 2, 1});
  as_call call{};
  call.struct_size = sizeof(call);
  as_error error{};
  if (cpu::lane()->ops[op](inputs.params().data(), &call, &error) != AS_OK) {
    throw std::runtime_error(error.message);
  }
  auto kept = keep_case(*find_case_op(op), inputs.params().data(), {"inputs", "cpu"});
  if (!kept) throw std::runtime_error(kept.error().text());
  return *kept;
}

// As much as a small case needs: strides may ask for all there is, which is no fault of form.
class SomeMemory : public CaseMemory {
 public:
  Result<void*> allocate(std::int64_t bytes, const char* name, bool) override {
    if (bytes > (std::int64_t{16} << 20)) return Error{AS_NO_ENVIRONMENT, name, {}};
    memory_.emplace_back(static_cast<std::size_t>(bytes) / 8 + 1);
    return memory_.back().data();
  }

 private:
  std::vector<std::vector<std::uint64_t>> memory_;
};

}  // namespace

SmallCase::SmallCase(const std::string& folder) : folder_(folder) {
  std::filesystem::create_directories(folder);
  if (auto ok = write_case(made(AS_OP_Q_ROPE_KV_INSERT), path()); !ok) {
    throw std::runtime_error(ok.error().text());
  }
  auto json = nlohmann::json::parse(read_bytes(path()));
  json.erase("digest");
  json_ = json.dump();
  tensors_ = read_bytes(tensors_path());
}

std::string SmallCase::judge() const {
  const auto kept = read_case(path());
  // The tensors may be those of any file in the folder.
  if (!kept) return judge_error(kept.error(), folder_);
  SomeMemory memory;
  const auto call = CaseCall::make(*kept, memory);
  if (call || call.error().code == AS_NO_ENVIRONMENT) return "";
  return judge_error(call.error(), kept->op.name);
}

void write_small_dump(const std::string& file) {
  const OpCase kept = made(AS_OP_SPARSE_ATTENTION);
  TensorWriter writer;
  for (const auto& [name, tensor] : kept.tensors) writer.add(name, stored_view(tensor));
  const auto call = CaseCall::make(kept);
  if (!call) throw std::runtime_error(call.error().text());
  for (const as_tap_info& tap : kept.op.taps) {
    if (tap.kind != AS_TAP_CACHE || !kept.caches.contains(tap.name)) continue;
    const StoredCache& cache = kept.caches.at(tap.name);
    writer.add(tap.name, ElementType::kU8, {cache.blocks, cache.page_stride},
               call->cache(tap).data.data,
               static_cast<std::uint64_t>(cache.blocks * cache.page_stride));
  }
  if (auto size = writer.write(file); !size) throw std::runtime_error(size.error().text());
}

std::string judge_map(const std::string& map, const std::string& dump) {
  const auto read = read_import_map(map);
  if (!read) return judge_error(read.error(), map);
  std::vector<TensorFile> files;
  auto opened = TensorFile::open(dump);
  if (!opened) return opened.error().text();
  files.push_back(std::move(*opened));
  for (const ImportOp& op : read->ops) {
    has_inputs(op, files, 0);
    const auto kept = import_case(op, files, read->engine, 0);
    if (kept) continue;
    // It names the tensor or the op; the file is the dump's.
    if (std::string wrong = judge_error(kept.error(), ""); !wrong.empty()) return wrong;
  }
  return "";
}

}  // namespace attnscope::fuzz
