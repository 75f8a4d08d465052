#include "engine/opcase/case_edit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <set>

#include "engine/backend/call_op.h"
#include "engine/io/json_object.h"
#include "engine/io/old_names.h"
#include "engine/opcase/rows_read.h"
#include "engine/tensorfile/tensor_file.h"
#include "engine/trace/compare.h"
#include "kernels/cpu/codec.h"
#include "kernels/cpu/cpu_lane.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

template <class T>
bool parse(const std::string& text, T* value) {
  const auto read = std::from_chars(text.data(), text.data() + text.size(), *value);
  return read.ec == std::errc() && read.ptr == text.data() + text.size();
}

// As the type holds it; false where an integer does not.
bool convert(double value, std::int32_t dtype, std::uint8_t* to, bool* rounded) {
  const auto put = [&](auto converted) {
    std::memcpy(to, &converted, sizeof(converted));
    return static_cast<double>(converted) == value || std::isnan(value);
  };
  switch (dtype) {
    case AS_F64:
      return put(value);
    case AS_F32:
      *rounded = !put(static_cast<float>(value));
      return true;
    case AS_BF16: {
      const std::uint16_t bits = cpu::float_to_bf16(static_cast<float>(value));
      std::memcpy(to, &bits, sizeof(bits));
      *rounded = static_cast<double>(cpu::bf16_to_float(bits)) != value && !std::isnan(value);
      return true;
    }
    case AS_I32:
      return std::fabs(value) < 0x1p31 && put(static_cast<std::int32_t>(value));
    case AS_I64:
      return std::fabs(value) < 0x1p53 && put(static_cast<std::int64_t>(value));
    default:
      return value >= 0 && value < 256 && put(static_cast<std::uint8_t>(value));
  }
}

class Editor {
 public:
  explicit Editor(OpCase kept) { out_.kept = std::move(kept); }

  Result<EditedCase> run(const std::vector<std::string>& changes) {
    std::set<std::string> names;
    for (const std::string& change : changes) {
      const std::size_t equals = change.find('=');
      if (equals == std::string::npos || equals == 0 || equals + 1 == change.size()) {
        return usage_error(fmt::format("{}: expected NAME=VALUE or NAME=FILE[:TENSOR]", change),
                           allowed());
      }
      if (!names.insert(change.substr(0, equals)).second) {
        return usage_error(fmt::format("{}: is set twice", change.substr(0, equals)),
                           "say once what it is to be");
      }
      auto ok = set(change.substr(0, equals), change.substr(equals + 1));
      if (!ok) return ok.error();
    }
    if (auto ok = holds_what_is_read(); !ok) return ok.error();
    return std::move(out_);
  }

 private:
  as_op_id op() const { return static_cast<as_op_id>(out_.kept.op.id); }
  bool is_input(const std::string& name, std::uint8_t kind) const {
    return std::ranges::any_of(out_.kept.op.taps, [&](const as_tap_info& t) {
      return t.direction == AS_TAP_IN && t.kind == kind && name == t.name;
    });
  }

  std::string allowed() const {
    std::vector<std::string> names;
    names.reserve(out_.kept.integers.size() + out_.kept.reals.size());
    for (const auto& [name, value] : out_.kept.integers) names.push_back(name);
    for (const auto& [name, value] : out_.kept.reals) names.push_back(name);
    for (const auto& [name, tensor] : out_.kept.tensors) {
      if (is_input(name, AS_TAP_TENSOR)) names.push_back(name);
    }
    for (const auto& [name, cache] : out_.kept.caches) {
      if (is_input(name, AS_TAP_CACHE)) names.push_back(name + ".rows");
    }
    return fmt::format("numbers and inputs of this case: {}", fmt::join(names, ", "));
  }

  Result<void> set(const std::string& given, const std::string& value) {
    const std::string name(tap_name_now(op(), given));
    if (const auto it = out_.kept.integers.find(name); it != out_.kept.integers.end()) {
      std::int32_t number = 0;
      if (!parse(value, &number)) {
        return usage_error(fmt::format("{}={}: no whole number of 32 bits", name, value));
      }
      it->second = number;
      return {};
    }
    if (const auto it = out_.kept.reals.find(name); it != out_.kept.reals.end()) {
      double number = 0;
      if (!parse(value, &number) || !std::isfinite(number)) {
        return usage_error(fmt::format("{}={}: no number", name, value));
      }
      it->second = number;
      return {};
    }
    if (const auto it = out_.kept.tensors.find(name);
        it != out_.kept.tensors.end() && is_input(name, AS_TAP_TENSOR)) {
      return take(name, value, it->second.dtype, it->second.shape, it->second.bytes);
    }
    if (name.ends_with(".rows")) {
      const std::string tap = name.substr(0, name.size() - 5);
      const auto it = out_.kept.caches.find(tap);
      if (it != out_.kept.caches.end() && is_input(tap, AS_TAP_CACHE)) {
        const as_tensor rows = stored_rows(it->second);
        return take(name, value, rows.dtype, {rows.shape, rows.shape + rows.rank}, it->second.rows);
      }
    }
    return usage_error(
        fmt::format("{}: no number or input of {}", shown_name(name), out_.kept.op.name),
        allowed());
  }

  // A tensor of a file in the place of `bytes`.
  Result<void> take(const std::string& name, const std::string& value, std::int32_t dtype,
                    const std::vector<std::int64_t>& shape, std::vector<std::uint8_t>& bytes) {
    const std::string end = ".safetensors:";
    const std::size_t colon = value.rfind(end);
    const std::string path =
        colon == std::string::npos ? value : value.substr(0, colon + end.size() - 1);
    std::string wanted = colon == std::string::npos ? name : value.substr(colon + end.size());
    auto file = TensorFile::open(path);
    if (!file) return file.error();
    const std::string before(tap_name_at_first(op(), name));
    if (file->find(wanted) == nullptr && colon == std::string::npos && file->find(before)) {
      wanted = before;
    }
    auto entry = file->get(wanted);
    if (!entry) return entry.error();
    const TensorEntry& from = **entry;
    const std::vector<std::int64_t>& has = from.shape;
    if (has != shape) {
      return bad_input(
          fmt::format("{}: tensor {} of {} has [{}], the case has [{}]", name, shown_name(wanted),
                      path, fmt::join(has, ","), fmt::join(shape, ",")),
          "an input keeps its shape; save or import a case of another one");
    }
    const std::int32_t from_dtype = dtype_of(from.type);
    if (from_dtype < 0) {
      return bad_input(fmt::format("{}: tensor {} of {} is {}, which is not converted", name,
                                   shown_name(wanted), path, element_name(from.type)),
                       "write it as f32, bf16 or an integer");
    }
    if (from_dtype == dtype) {
      if (!bytes.empty()) std::memcpy(bytes.data(), from.data, bytes.size());
      return {};
    }
    std::vector<std::uint64_t> aligned(from.bytes / 8 + 1);
    if (from.bytes > 0) std::memcpy(aligned.data(), from.data, from.bytes);
    as_tensor tensor{};
    tensor.data = aligned.data();
    tensor.dtype = from_dtype;
    tensor.rank = 1;
    tensor.shape[0] = from.elements;
    tensor.stride[0] = 1;
    const std::int64_t size = as_dtype_size(dtype);
    std::int64_t rounded = 0;
    for (std::int64_t i = 0; i < from.elements; ++i) {
      const double v = element(tensor, 0, i);
      bool other = false;
      if (!convert(v, dtype, bytes.data() + i * size, &other)) {
        return bad_input(fmt::format("{}: {} of tensor {} has no {} value", name, v,
                                     shown_name(wanted), as_dtype_name(dtype)));
      }
      rounded += other ? 1 : 0;
    }
    if (rounded > 0) {
      out_.notes.push_back(
          fmt::format("{}: {} values were rounded to {}", name, rounded, as_dtype_name(dtype)));
    }
    return {};
  }

  // Numbers that the op refuses, which it says best itself when the case is run, lead to rows that
  // it would never read. Rows that the case does not hold are 0xff in the call's memory, which has
  // every block.
  bool is_refused(CaseCall& call) const {
    return !call_op(cpu::lane()->ops[op()], call.params(), host_call(nullptr));
  }

  // Lists may lead to rows that only the cache had.
  Result<void> holds_what_is_read() const {
    auto call = CaseCall::make(out_.kept);
    if (!call) return call.error();
    for (const as_tap_info& tap : out_.kept.op.taps) {
      const auto it = out_.kept.caches.find(tap.name);
      if (it == out_.kept.caches.end() || tap.direction != AS_TAP_IN) continue;
      for (const std::int64_t slot : slots_touched(out_.kept.op, call->params(), tap.offset)) {
        if (std::ranges::binary_search(it->second.slots, slot)) continue;
        if (is_refused(*call)) return {};
        return bad_input(fmt::format("slot {} of {} would be read, which the case does not hold",
                                     slot, tap.name),
                         "its rows are those that the call read when it was kept");
      }
    }
    for (const auto& [name, rope] : out_.kept.ropes) {
      for (const std::int64_t row : rope_rows_read(out_.kept.op, call->params())) {
        if (std::ranges::binary_search(rope.positions, row)) continue;
        return bad_input(
            fmt::format("position {} of {} would be read, which the case does not hold", row, name),
            "its rows are those that the call read when it was kept");
      }
    }
    return {};
  }

  EditedCase out_;
};

}  // namespace

Result<EditedCase> edit_case(OpCase kept, const std::vector<std::string>& changes) {
  return Editor(std::move(kept)).run(changes);
}

}  // namespace attnscope
