#include "engine/checkpoint/export_checkpoint.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/checkpoint/second_reading.h"
#include "engine/checkpoint/tensor_names.h"
#include "engine/checkpoint/weight_slots.h"
#include "engine/family/family.h"
#include "engine/io/folder.h"
#include "engine/io/folder_swap.h"
#include "engine/io/json_file.h"
#include "engine/io/printable.h"
#include "engine/model/fp8_projections.h"
#include "engine/tensorfile/tensor_writer.h"
#include "kernels/cpu/codec.h"

namespace attnscope {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

// Removed again unless it was given away.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& path)
      : path_(fmt::format("{}.new-{}", path, static_cast<long>(::getpid()))) {}
  ~TemporaryFolder() {
    std::error_code code;
    fs::remove_all(path_, code);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  Result<void> make() const {
    std::error_code code;
    fs::remove_all(path_, code);
    if (fs::create_directory(path_, code)) return {};
    return bad_input(fmt::format("{}: cannot make the folder: {}", path_, code.message()),
                     "choose a name in a folder that can be written");
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

Result<std::string> check_target(const std::string& name) {
  std::string path = name;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const std::string last = fs::path(path).filename().string();
  if (last.empty() || last == "." || last == "..") {
    return bad_input(fmt::format("'{}': names no new folder", name), "name the folder to make");
  }
  std::error_code code;
  const fs::path parent = fs::path(path).parent_path();
  if (auto ok = check_folder(name, parent.empty() ? "." : parent, "choose another name"); !ok) {
    return ok.error();
  }
  const bool taken = fs::exists(fs::symlink_status(path, code)) &&
                     !(fs::is_directory(path, code) && fs::is_empty(path, code));
  if (taken) {
    return bad_input(fmt::format("{}: exists and is not empty", name),
                     "choose another name; nothing is overwritten");
  }
  return path;
}

class Exporter {
 public:
  Exporter(const Weights& weights, const ModelConfig& config, ExportDtype dtype,
           const as_threads* threads)
      : config_(config), dtype_(dtype), threads_(threads), slots_(weight_slots(config, weights)) {}

  Result<ExportTotals> write(const std::string& folder) {
    totals_.shards = config_.num_layers() + 1;
    std::size_t at = 0;
    for (std::int64_t s = 0; s < totals_.shards; ++s) {
      const int layer = slots_[at].layer;
      const std::string name =
          fmt::format("model-{:05}-of-{:05}.safetensors", s + 1, totals_.shards);
      TensorWriter writer;
      writer.leave_unaligned();
      writer.metadata("format", "pt");
      for (; at < slots_.size() && slots_[at].layer == layer; ++at) add(slots_[at], name, writer);
      auto size = writer.write((fs::path(folder) / name).string());
      if (!size) return size.error();
      totals_.bytes += size->bytes;
    }
    const ordered_json index = {{"metadata", {{"total_size", payload_}}}, {"weight_map", map_}};
    if (auto ok = text(folder, "model.safetensors.index.json", index); !ok) return ok.error();
    if (auto ok = text(folder, "config.json",
                       family_of(config_).write_config(config_, dtype_ == ExportDtype::kFp8));
        !ok)
      return ok.error();
    return totals_;
  }

 private:
  Result<void> text(const std::string& folder, const char* name, const ordered_json& tree) {
    const std::string content = json_text(tree, 2) + "\n";
    totals_.bytes += content.size();
    return write_text_file((fs::path(folder) / name).string(), content);
  }

  void count(const std::string& name, const std::string& shard, std::size_t bytes) {
    map_[name] = shard;
    payload_ += bytes;
    ++totals_.tensors;
  }

  void add(const WeightSlot& slot, const std::string& shard, TensorWriter& writer) {
    const auto n = static_cast<std::size_t>(slot.size());
    if (slot.f32 != nullptr) {
      writer.add(slot.name, ElementType::kF32, slot.shape, slot.f32, n * sizeof(float));
      count(slot.name, shard, n * sizeof(float));
      return;
    }
    if (slot.codes != nullptr) return add_codes(slot, shard, writer);
    if (!slot.in_blocks || dtype_ == ExportDtype::kBf16) {
      writer.add(slot.name, ElementType::kBf16, slot.shape, slot.bf16, n * sizeof(bf16_t));
      count(slot.name, shard, n * sizeof(bf16_t));
      // Embedding and head are one tensor here and two in a file.
      const char* head = family_of(config_).head_copy;
      if (head != nullptr && slot.layer < 0 && slot.shape.size() == 2) {
        writer.add(head, ElementType::kBf16, slot.shape, slot.bf16, n * sizeof(bf16_t));
        count(head, shard, n * sizeof(bf16_t));
      }
      return;
    }
    const std::int64_t rows = slot.shape[0], columns = slot.shape[1];
    Fp8Blocks blocks = encode_fp8_blocks(slot.bf16, rows, columns, threads_);
    totals_.changed += blocks.changed;
    totals_.in_blocks += slot.size();
    add_scaled(slot, shard, writer, std::move(blocks.codes), ElementType::kF8E8m0,
               std::move(blocks.scales));
  }

  void add_scaled(const WeightSlot& slot, const std::string& shard, TensorWriter& writer,
                  std::vector<std::uint8_t> codes, ElementType type,
                  std::vector<std::uint8_t> scales) {
    const std::string name = scale_name(slot.name);
    count(slot.name, shard, codes.size());
    count(name, shard, scales.size());
    writer.add_owned(slot.name, ElementType::kF8E4m3, slot.shape, std::move(codes));
    writer.add_owned(name, type, {scale_blocks(slot.shape[0]), scale_blocks(slot.shape[1])},
                     std::move(scales));
  }

  // Of a matrix that is in FP8: as it is, or its values.
  void add_codes(const WeightSlot& slot, const std::string& shard, TensorWriter& writer) {
    const std::int64_t rows = slot.shape[0], columns = slot.shape[1];
    const std::size_t n = static_cast<std::size_t>(slot.size());
    const std::vector<float> stored = published_scales(slot.scales, rows, columns, slot.scale_span);
    const std::vector<double> scales(stored.begin(), stored.end());
    if (dtype_ == ExportDtype::kBf16) {
      std::vector<std::uint8_t> values(n * sizeof(bf16_t));
      decode_fp8_blocks(slot.codes, scales, rows, columns, reinterpret_cast<bf16_t*>(values.data()),
                        threads_);
      count(slot.name, shard, values.size());
      writer.add_owned(slot.name, ElementType::kBf16, slot.shape, std::move(values));
      return;
    }
    totals_.in_blocks += slot.size();
    std::vector<std::uint8_t> bytes;
    bool powers = true;  // of two: all that a UE8M0 byte holds
    for (const double scale : scales) {
      int exponent = 0;
      powers = powers && std::frexp(scale, &exponent) == 0.5;
      bytes.push_back(cpu::exponent_to_ue8m0(exponent - 1));
    }
    if (!powers) {
      const auto* from = reinterpret_cast<const std::uint8_t*>(stored.data());
      bytes.assign(from, from + scales.size() * sizeof(float));
    }
    add_scaled(slot, shard, writer, {slot.codes, slot.codes + n},
               powers ? ElementType::kF8E8m0 : ElementType::kF32, std::move(bytes));
  }

  const ModelConfig& config_;
  ExportDtype dtype_;
  const as_threads* threads_;
  std::vector<WeightSlot> slots_;
  ordered_json map_ = ordered_json::object();
  std::uint64_t payload_ = 0;
  ExportTotals totals_;
};

}  // namespace

Result<ExportTotals> export_checkpoint(const Weights& weights, const ModelConfig& config,
                                       const std::string& folder, ExportDtype dtype,
                                       const as_threads* threads) {
  auto path = check_target(folder);
  if (!path) return path.error();
  const TemporaryFolder made(*path);
  if (auto ok = made.make(); !ok) return ok.error();
  auto totals = Exporter(weights, config, dtype, threads).write(made.path());
  if (!totals) return totals.error();
  if (auto ok = check_exported(made.path(), config, weights); !ok) return ok.error();
  if (auto ok = replace_folder(made.path(), *path); !ok) return ok.error();
  return totals;
}

}  // namespace attnscope
