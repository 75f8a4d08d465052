#include "engine/opcase/case_edit_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>

#include "engine/io/old_names.h"
#include "engine/tensorfile/tensor_file.h"
#include "engine/trace/plain_number.h"

namespace attnscope {
namespace {

// Whether a kept number is the nearest of its type to what was given.
bool holds_given(double kept, double given, std::int32_t dtype) {
  if (std::isnan(given)) return std::isnan(kept);
  if (kept == given) return true;
  if (dtype == AS_F32) return kept == static_cast<double>(static_cast<float>(given));
  if (dtype != AS_BF16) return false;
  // Half a step beyond the largest: the nearest is infinity.
  if (std::isinf(kept)) return std::copysign(1, kept) * given >= 0x1.ffp127;
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(kept));
  // Its neighbours in magnitude are no nearer; given is rounded to f32 first.
  const double wanted = static_cast<double>(static_cast<float>(given));
  for (const std::uint32_t other : {bits + 0x10000, bits - 0x10000}) {
    const auto neighbour = static_cast<double>(std::bit_cast<float>(other));
    if (std::fabs(neighbour - wanted) < std::fabs(kept - wanted)) return false;
  }
  return true;
}

class EditLook {
 public:
  EditLook(const OpCase& before, const OpCase& after) : before_(before), after_(after) {}

  Result<std::string> run(const std::vector<std::string>& changes) {
    for (const std::string& change : changes) {
      const std::size_t equals = change.find('=');
      const std::string name(tap_name_now(op(), std::string_view(change).substr(0, equals)));
      given_[name] = change.substr(equals + 1);  // the last one counts
      reads_others_ =
          reads_others_ || before_.integers.contains(name) || before_.tensors.contains(name);
    }
    for (const auto& [name, was] : before_.integers) {
      number(name, static_cast<double>(was), static_cast<double>(after_.integers.at(name)));
    }
    for (const auto& [name, was] : before_.reals) number(name, was, after_.reals.at(name));
    for (const as_tap_info& tap : before_.op.taps) {
      if (tap.direction != AS_TAP_IN) continue;
      if (const auto it = before_.tensors.find(tap.name); it != before_.tensors.end()) {
        const StoredTensor& now = after_.tensors.at(tap.name);
        const auto size = static_cast<std::int64_t>(it->second.bytes.size());
        auto ok = bytes(tap.name, it->second.bytes, now.bytes, now.dtype, {size, {0}});
        if (!ok) return ok.error();
      }
      if (const auto it = before_.caches.find(tap.name); it != before_.caches.end()) {
        const StoredCache& now = after_.caches.at(tap.name);
        const std::string rows = tap.name + std::string(".rows");
        const auto kept = places(rows, it->second.slots, now.slots);
        const std::int32_t dtype = as_row_is_values(now.record) != 0 ? AS_F32 : AS_U8;
        auto ok = bytes(rows, it->second.rows, now.rows, dtype, {now.row_bytes(), kept});
        if (!ok) return ok.error();
      }
    }
    for (const auto& [name, was] : before_.ropes) {
      const StoredRope& now = after_.ropes.at(name);
      const Rows kept = {was.dims * std::int64_t{sizeof(float)},
                         places(name, was.positions, now.positions)};
      if (differ(was.rows.data(), now.rows.data(), kept)) changed(name);
    }
    return wrong_;
  }

 private:
  // Which rows of a case the other one has too: its row i is row at[i] of what was, of so many
  // bytes. Of a narrower window or a shorter list a call reads fewer rows, and a case keeps those
  // that are read.
  struct Rows {
    std::int64_t bytes = 0;
    std::vector<std::int64_t> at;
  };

  static bool differ(const void* was, const void* is, const Rows& rows) {
    const auto *from = static_cast<const char*>(was), *to = static_cast<const char*>(is);
    for (const std::int64_t row : rows.at) {
      if (std::memcmp(from + row * rows.bytes, to, static_cast<std::size_t>(rows.bytes)) != 0) {
        return true;
      }
      to += rows.bytes;
    }
    return false;
  }

  // Where the rows (slots or positions, ascending) of the new case lie among those of the old one.
  std::vector<std::int64_t> places(const std::string& name, const std::vector<std::int64_t>& was,
                                   const std::vector<std::int64_t>& is) {
    if (!reads_others_ && was != is) wrong_ = fmt::format("{} has other slots", name);
    std::vector<std::int64_t> at;
    for (const std::int64_t row : is) {
      const auto found = std::ranges::lower_bound(was, row);
      if (found == was.end() || *found != row) {
        wrong_ = fmt::format("{} has row {}, which the case did not hold", name, row);
        return {};
      }
      at.push_back(found - was.begin());
    }
    return at;
  }

  as_op_id op() const { return static_cast<as_op_id>(before_.op.id); }

  void changed(const std::string& name) {
    wrong_ = fmt::format("{} is another, and no change names it", name);
  }

  void number(const std::string& name, double was, double is) {
    const auto given = given_.find(name);
    if (given == given_.end()) {
      if (was != is) changed(name);
      return;
    }
    if (is == std::strtod(given->second.c_str(), nullptr)) return;
    wrong_ = fmt::format("{} was to be {} and is {}", name, given->second, is);
  }

  Result<void> bytes(const std::string& name, const std::vector<std::uint8_t>& was,
                     const std::vector<std::uint8_t>& is, std::int32_t dtype, const Rows& rows) {
    const auto given = given_.find(name);
    if (given == given_.end()) {
      if (differ(was.data(), is.data(), rows)) changed(name);
      return {};
    }
    // FILE, or FILE.safetensors:TENSOR.
    std::string file = given->second, tensor = name;
    const std::string end = ".safetensors:";
    if (const std::size_t at = file.rfind(end); at != std::string::npos) {
      tensor = file.substr(at + end.size());
      file.resize(at + end.size() - 1);
    }
    auto opened = TensorFile::open(file);
    if (!opened) return opened.error();
    // A case of before has it under its old name.
    const std::string first(tap_name_at_first(op(), name));
    auto entry = opened->get(tensor == name && opened->find(first) != nullptr ? first : tensor);
    if (!entry) return entry.error();
    const TensorEntry& from = **entry;
    const std::int32_t from_dtype = dtype_of(from.type);
    const std::int64_t from_size = as_dtype_size(from_dtype), size = as_dtype_size(dtype);
    if (from.elements * size != static_cast<std::int64_t>(was.size())) {
      return bad_input(fmt::format("{}: tensor {} became another while it was read", file, tensor),
                       "run the command again");
    }
    const std::uint8_t* next = is.data();
    for (const std::int64_t row : rows.at) {
      const std::int64_t begin = row * rows.bytes / size;
      for (std::int64_t i = begin; i < begin + rows.bytes / size; ++i, next += size) {
        const double wanted = plain_number(from.data + i * from_size, from_dtype);
        const double kept = plain_number(next, dtype);
        if (holds_given(kept, wanted, dtype)) continue;
        wrong_ = fmt::format("element {} of {} was to be {} and is {}", i, name, wanted, kept);
        return {};
      }
    }
    return {};
  }

  const OpCase &before_, &after_;
  std::map<std::string, std::string> given_;  // by number or input
  bool reads_others_ = false;                 // a change may lead to other rows
  std::string wrong_;
};

}  // namespace

Result<std::string> edit_fault(const OpCase& before, const OpCase& after,
                               const std::vector<std::string>& changes) {
  return EditLook(before, after).run(changes);
}

}  // namespace attnscope
