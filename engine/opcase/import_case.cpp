#include "engine/opcase/import_case.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <list>

#include "engine/family/family.h"
#include "engine/io/json_object.h"
#include "engine/opcase/import_join.h"
#include "engine/opcase/import_rows.h"
#include "engine/opcase/import_sizes.h"
#include "engine/opcase/import_use.h"
#include "engine/opcase/import_values.h"
#include "engine/trace/tolerances.h"
#include "kernels/cpu/codec.h"
#include "kernels/cpu/rope_table.h"
#include "kernels/layout/records.h"
#include "kernels/params/head.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

// Elements of a view whose strides repeat those of the dump: beyond any list that a model has.
constexpr std::int64_t kMostRepeated = std::int64_t{1} << 24;

const TensorEntry* find(const std::vector<TensorFile>& files, const std::string& name) {
  for (const TensorFile& file : files) {
    if (const TensorEntry* entry = file.find(name)) return entry;
  }
  return nullptr;
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> out(1);
  for (const char c : text) {
    if (c == at) {
      out.emplace_back();
    } else {
      out.back() += c;
    }
  }
  return out;
}

std::int32_t dtype_named(const std::string& name) {
  for (std::int32_t d = 0; d < AS_DTYPE_COUNT; ++d) {
    if (name == as_dtype_name(d)) return d;
  }
  return -1;
}

// Whether the dump has a tensor of the map, all its parts where it has several.
bool has_all_of(const ImportTensor& t, const std::vector<TensorFile>& files, int layer) {
  const auto has = [&](const std::string& name) {
    return name.empty() || find(files, with_layer(name, layer)) != nullptr;
  };
  return has(t.name) && has(t.factor_name) && std::ranges::all_of(t.stack, has) &&
         std::ranges::all_of(t.concat, has);
}

// Whether a model keeps an output in bf16: of projections some do, the others have theirs in fp32.
bool rounds_to_bf16(std::int32_t op, std::string_view output) {
  const Node* node = example_node(static_cast<as_op_id>(op));
  const Binding* bound = node != nullptr ? node->find(output) : nullptr;
  return bound != nullptr && bound->is_output() && bound->dtype == AS_BF16;
}

// Tensors of the compressed entries: an attention over the window alone has none of them.
bool is_extra(std::string_view tap) { return tap.starts_with("extra_"); }

class CaseImporter {
 public:
  CaseImporter(const ImportOp& op, const std::vector<TensorFile>& files, int layer)
      : map_(op), files_(files), layer_(layer) {}

  Result<ImportedCase> make(const std::string& engine) {
    params_.assign((map_.op.params_size + 7) / 8, 0);
    const as_params_head head = {static_cast<std::uint32_t>(map_.op.params_size),
                                 AS_PARAMS_VERSION};
    std::memcpy(params_.data(), &head, sizeof(head));
    if (auto ok = numbers(); !ok) return ok.error();
    for (const as_tap_info& tap : map_.op.taps) {
      auto ok = tap.kind == AS_TAP_CACHE ? cache(tap) : tensor(tap);
      if (!ok) return ok.error();
    }
    if (auto ok = sizes_fit(); !ok) return ok.error();
    if (auto ok = missing_outputs(); !ok) return ok.error();
    for (const as_param_info& field : map_.op.fields) {
      if (field.kind != AS_PARAM_ROPE) continue;
      if (auto ok = rope(field); !ok) return ok.error();
    }
    if (auto ok = lists_are_whole(); !ok) return ok.error();
    auto kept = keep_case(map_.op, params_.data(), {engine + " dump", engine, -1, layer_});
    if (!kept) return kept.error();
    for (const auto& [name, pages] : pages_) {
      for (const std::int64_t slot : kept->caches[name].slots) {
        if (!std::binary_search(pages.without_codes.begin(), pages.without_codes.end(), slot)) {
          continue;
        }
        return bad_input(
            fmt::format("{}: slot {} of {} holds FNUZ codes of +-240, or a scale of 2^-127, which "
                        "have no e4m3fn codes at half the scale",
                        map_.op.name, slot,
                        shown_name(with_layer(map_.caches.at(name).name, layer_))),
            "dump this cache as values");
      }
    }
    kept->unknown = unknown_;
    if (auto ok = name_classes(*kept); !ok) return ok.error();
    return ImportedCase{std::move(*kept), std::move(notes_)};
  }

  Result<std::vector<std::int64_t>> integers(const ImportTensor& t) {
    auto found = entry(t);
    if (!found) return found.error();
    const TensorEntry& e = **found;
    auto seen = view(t, e);
    if (!seen) return seen.error();
    std::vector<std::int64_t> out(static_cast<std::size_t>(as_tensor_numel(&*seen)));
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (e.type != ElementType::kI64 && e.type != ElementType::kI32) {
        return bad_input(fmt::format("{}: tensor {} is {}, integers are wanted", map_.op.name,
                                     shown_name(e.name), element_name(e.type)),
                         "dump it as i32 or i64");
      }
      const std::int64_t at = offset_of(t, *seen, static_cast<std::int64_t>(i));
      out[i] =
          static_cast<std::int64_t>(value_of(e.type, e.data + at * (element_bits(e.type) / 8)));
    }
    return out;
  }

 private:
  Result<const TensorEntry*> entry(const std::string& name) const {
    const std::string full = with_layer(name, layer_);
    if (const TensorEntry* e = find(files_, full)) return e;
    std::vector<std::string> names;
    for (const TensorFile& file : files_) {
      for (const TensorEntry& e : file.tensors()) {
        if (names.size() < 12) names.push_back(e.name);
      }
    }
    return bad_input(fmt::format("{}: the dump has no tensor {}", map_.op.name, shown_name(full)),
                     fmt::format("it has {}, ..", fmt::join(names, ", ")));
  }

  // What the map says that it is made of.
  Result<const TensorEntry*> entry(const ImportTensor& t) {
    if (t.concat.empty()) return entry(t.name);
    std::vector<const TensorEntry*> parts;
    for (const std::string& name : t.concat) {
      auto part = entry(name);
      if (!part) return part.error();
      parts.push_back(*part);
    }
    auto joined = joined_entry(parts, t.axis);
    if (!joined) {
      return bad_input(fmt::format("{}: {}", map_.op.name, joined.error().message),
                       joined.error().hint);
    }
    joined_.push_back(std::move(*joined));
    return &joined_.back().entry;
  }

  Result<void> numbers() {
    for (const as_param_info& field : map_.op.fields) {
      if (field.kind == AS_PARAM_ROPE) continue;
      const auto it = map_.numbers.find(field.name);
      const double value = it != map_.numbers.end() ? it->second : 0;
      const bool may_be_absent = field.kind == AS_PARAM_INTEGER;
      if (it == map_.numbers.end() && !may_be_absent) {
        return bad_input(fmt::format("{}: the map gives no number {}", map_.op.name, field.name),
                         "add it under \"numbers\"");
      }
      auto* to = reinterpret_cast<unsigned char*>(params_.data()) + field.offset;
      if (field.kind == AS_PARAM_REAL) {
        std::memcpy(to, &value, sizeof(value));
      } else if (!put_value(value, AS_I32, false, to)) {
        return bad_input(fmt::format("{}: {} must be an integer", map_.op.name, field.name));
      }
    }
    return {};
  }

  // Shape and strides of a view of the dump's elements; checks that it stays inside.
  Result<as_tensor> view(const ImportTensor& t, const TensorEntry& e) const {
    std::vector<std::int64_t> shape = t.shape.empty() ? e.shape : t.shape;
    while (t.axes > 0 && std::ssize(shape) > t.axes) {
      shape[1] *= shape[0];
      shape.erase(shape.begin());
    }
    if (t.axes > 0 && std::ssize(shape) < t.axes) shape.insert(shape.begin(), 1);
    const auto wrong = [&](const std::string& what) {
      return bad_input(fmt::format("{}: tensor {} of [{}]: {}", map_.op.name, shown_name(e.name),
                                   fmt::join(e.shape, ","), what),
                       "look at shape, stride, offset and permute in the map");
    };
    if (shape.empty() || shape.size() > AS_MAX_RANK) return wrong("expected 1 to 4 axes");
    std::int64_t known = 1;
    for (const std::int64_t n : shape) {
      if (n >= 0) known *= std::max<std::int64_t>(1, n);
      if (known > (std::int64_t{1} << 40)) return wrong("the shape is too large");
    }
    const std::int64_t left = std::max<std::int64_t>(0, e.elements - t.offset);
    for (std::size_t i = 0; i < shape.size(); ++i) {
      if (shape[i] >= 0) continue;
      if (t.stride.empty() && left % known != 0) {
        return wrong(fmt::format("[{}]: {} elements are no multiple of {}", fmt::join(shape, ","),
                                 left, known));
      }
      shape[i] = t.stride.empty() ? left / known : rows_inside(t, i, left);
    }
    as_tensor out{};
    out.rank = static_cast<std::int32_t>(shape.size());
    std::int64_t dense = 1, last = t.offset;
    for (std::size_t i = shape.size(); i-- > 0;) {
      out.shape[i] = shape[i];
      out.stride[i] = t.stride.empty() ? dense : t.stride[i];
      dense *= std::max<std::int64_t>(1, shape[i]);
      if (shape[i] > 1 && out.stride[i] > (std::int64_t{1} << 40) / shape[i]) {
        return wrong("the strides are too large");
      }
      last += std::max<std::int64_t>(0, shape[i] - 1) * out.stride[i];
    }
    if (as_tensor_numel(&out) > std::max(e.elements, kMostRepeated)) {
      return wrong(fmt::format("[{}] repeats its elements to more than {} of them",
                               fmt::join(shape, ","), kMostRepeated));
    }
    if (as_tensor_numel(&out) > 0 && last >= e.elements) {
      return wrong(
          fmt::format("[{}] reaches element {} of {}", fmt::join(shape, ","), last, e.elements));
    }
    if (!t.slice.empty()) {
      if (t.slice[0] >= out.rank || t.slice[2] > out.shape[t.slice[0]]) {
        return wrong(fmt::format("slice [{}] is not inside of [{}]", fmt::join(t.slice, ","),
                                 fmt::join(out.shape, out.shape + out.rank, ",")));
      }
      out.shape[t.slice[0]] = t.slice[2] - t.slice[1];
    }
    if (t.permute.empty()) return out;
    std::vector<std::int64_t> sorted = t.permute;
    std::sort(sorted.begin(), sorted.end());
    for (std::size_t i = 0; i < sorted.size(); ++i) {
      if (sorted.size() != shape.size() || sorted[i] != static_cast<std::int64_t>(i)) {
        return wrong("permute must name every axis once");
      }
    }
    const as_tensor from = out;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      out.shape[i] = from.shape[t.permute[i]];
      out.stride[i] = from.stride[t.permute[i]];
    }
    return out;
  }

  // How often the axis that was left open fits into so many elements, by its stride.
  static std::int64_t rows_inside(const ImportTensor& t, std::size_t axis, std::int64_t left) {
    std::int64_t last = 0;  // element of a row
    for (std::size_t a = 0; a < t.shape.size(); ++a) {
      if (a == axis || t.shape[a] <= 1 || t.stride[a] == 0) continue;
      if (t.shape[a] - 1 > left / t.stride[a]) return 0;
      last += (t.shape[a] - 1) * t.stride[a];
    }
    if (left <= last) return 0;
    return t.stride[axis] == 0 ? 1 : (left - last - 1) / t.stride[axis] + 1;
  }

  // Where a slice begins: its axis has moved where axes are permuted.
  static std::int64_t slice_offset(const ImportTensor& t, const as_tensor& view) {
    if (t.slice.empty()) return 0;
    const auto moved = std::ranges::find(t.permute, t.slice[0]);
    const std::int64_t axis =
        t.permute.empty() ? t.slice[0] : static_cast<std::int64_t>(moved - t.permute.begin());
    return t.slice[1] * view.stride[axis];
  }

  // Where element i of a view lies.
  static std::int64_t offset_of(const ImportTensor& t, const as_tensor& view, std::int64_t i) {
    std::int64_t offset = t.offset + slice_offset(t, view);
    for (std::int32_t a = view.rank - 1; a >= 0; --a) {
      offset += i % view.shape[a] * view.stride[a];
      i /= view.shape[a];
    }
    return offset;
  }

  Result<double> factor(const ImportTensor& t) const {
    if (t.factor_name.empty()) return t.factor;
    auto e = entry(t.factor_name);
    if (!e) return e.error();
    if ((*e)->elements != 1 || !has_value((*e)->type)) {
      return bad_input(
          fmt::format("{}: tensor {} is not one number", map_.op.name, shown_name((*e)->name)));
    }
    return t.factor * value_of((*e)->type, (*e)->data);
  }

  void* allocate(std::int64_t bytes) {
    memory_.emplace_back(static_cast<std::size_t>(bytes + 7) / 8 + 1);
    return memory_.back().data();
  }

  Result<void> tensor(const as_tap_info& tap) {
    const auto it = map_.tensors.find(tap.name);
    if (it == map_.tensors.end()) return {};
    const ImportTensor& t = it->second;
    const bool output = tap.direction == AS_TAP_OUT;
    if ((output || is_extra(tap.name)) && !has_all_of(t, files_, layer_)) return {};
    if (!t.values.empty()) return literal(tap, t);
    if (!t.stack.empty()) return stacked(tap, t);
    auto found = entry(t);
    if (!found) return found.error();
    const TensorEntry& e = **found;
    auto seen = view(t, e);
    if (!seen) return seen.error();
    auto times = factor(t);
    if (!times) return times.error();
    if (!has_value(e.type)) {
      return bad_input(fmt::format("{}: tensor {} is {}, which is not converted", map_.op.name,
                                   shown_name(e.name), element_name(e.type)),
                       "dump it as bf16, f32 or an integer");
    }
    // The dump's own type where the op takes it, else the first that it takes. An output that the
    // op rounds to bf16 is judged as that, whatever type a lane may write it in.
    const std::vector<std::string> taken = split(tap.dtype, '|');
    std::int32_t dtype = dtype_named(taken.front());
    if (t.decode.empty() && !(output && rounds_to_bf16(map_.op.id, tap.name))) {
      const std::int32_t own = dtype_of(e.type);
      for (const std::string& name : taken) dtype = dtype_named(name) == own ? own : dtype;
    }
    if (!t.decode.empty() && element_bits(e.type) != 8) {
      return bad_input(fmt::format("{}: tensor {} is {}, which has no codes to decode",
                                   map_.op.name, shown_name(e.name), element_name(e.type)),
                       "leave \"decode\" out: its values are taken");
    }
    if (t.decode.empty() && is_fp8(e.type) && (dtype != AS_U8 || !is_plain_byte(e.type))) {
      return bad_input(fmt::format("{}: tensor {} holds {} codes, {} is wanted", map_.op.name,
                                   shown_name(e.name), element_name(e.type), as_dtype_name(dtype)),
                       "say \"decode\": \"e4m3\" or \"e4m3fnuz\", with its factor");
    }
    const bool floats = is_float(e.type) && (dtype == AS_BF16 || dtype == AS_F32);
    auto padded = padded_view(t, *seen, floats, tap.name);
    if (!padded) return padded.error();
    as_tensor to = *padded;
    to.dtype = dtype;
    const std::int64_t count = as_tensor_numel(&*seen), size = as_dtype_size(dtype);
    to.data = allocate(as_tensor_numel(&to) * size);
    const std::int64_t from_size = element_bits(e.type) / 8;
    const bool same = t.decode.empty() && *times == 1 && dtype_of(e.type) == dtype;
    std::int64_t rounded = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::uint8_t* from = e.data + offset_of(t, *seen, i) * from_size;
      auto* put = static_cast<std::uint8_t*>(to.data) + place_of(to, *seen, i) * size;
      if (same) {
        std::memcpy(put, from, static_cast<std::size_t>(size));
        continue;
      }
      const double value = t.decode.empty()
                               ? value_of(e.type, from)
                               : static_cast<double>(e4m3_value(*from, t.decode == "e4m3fnuz"));
      const bool scaled = !t.decode.empty() || *times != 1;
      if (put_value(value * *times, dtype, scaled, put)) continue;
      ++rounded;
      const bool lost = std::isfinite(value) && !std::isfinite(value_of(element_of(dtype), put));
      if (!floats || lost) {
        return bad_input(fmt::format("{}: {} of tensor {} has no {} value", map_.op.name, value,
                                     shown_name(e.name), as_dtype_name(dtype)),
                         "dump it in the op's own type");
      }
    }
    if (rounded > 0) {
      notes_.push_back(fmt::format("{}: {} is rounded to {}, once: {} of {} values change",
                                   tap.name, element_name(e.type), as_dtype_name(dtype), rounded,
                                   count));
    }
    if (std::string_view(tap.name) == "sinks" && e.type == ElementType::kBf16) {
      notes_.push_back(
          "warning: sinks are stored as bf16: published ones are fp32, so that either "
          "bits were lost or fp32 was read by halves");
    }
    as_tensor& put = tensor_at(params_.data(), tap.offset);
    to.reserved = put.reserved;  // a number of the map
    put = to;
    return {};
  }

  // A tensor in memory of its own.
  as_tensor make(const std::vector<std::int64_t>& shape, std::int32_t dtype) {
    as_tensor to{};
    to.rank = static_cast<std::int32_t>(shape.size());
    to.dtype = dtype;
    std::int64_t stride = 1;
    for (std::size_t a = shape.size(); a-- > 0;) {
      to.shape[a] = shape[a];
      to.stride[a] = stride;
      stride *= std::max<std::int64_t>(1, shape[a]);
    }
    to.data = allocate(as_tensor_numel(&to) * as_dtype_size(dtype));
    return to;
  }
  Error no_value(double value, const std::string& name, std::int32_t dtype) const {
    return bad_input(fmt::format("{}: {} of tensor {} has no {} value", map_.op.name, value,
                                 shown_name(name), as_dtype_name(dtype)),
                     "dump it in the op's own type");
  }

  // Elements that the map gives.
  Result<void> literal(const as_tap_info& tap, const ImportTensor& t) {
    if (t.shape.size() > AS_MAX_RANK) {
      return bad_input(fmt::format("{}: {} has {} axes", map_.op.name, tap.name, t.shape.size()));
    }
    const as_tensor to = make(t.shape, dtype_named(split(tap.dtype, '|').front()));
    auto* put = static_cast<std::uint8_t*>(to.data);
    for (const std::int64_t value : t.values) {
      if (!put_value(static_cast<double>(value), to.dtype, false, put)) {
        return no_value(static_cast<double>(value), tap.name, to.dtype);
      }
      put += as_dtype_size(to.dtype);
    }
    tensor_at(params_.data(), tap.offset) = to;
    return {};
  }

  // Tensors of one shape behind each other; the last axis of a table may be longer in some, the
  // others have the null block there.
  Result<void> stacked(const as_tap_info& tap, const ImportTensor& t) {
    std::vector<std::pair<const TensorEntry*, as_tensor>> parts;
    std::vector<std::int64_t> shape;
    for (const std::string& name : t.stack) {
      auto found = entry(name);
      if (!found) return found.error();
      auto seen = view(t, **found);
      if (!seen) return seen.error();
      std::vector<std::int64_t> own(seen->shape, seen->shape + seen->rank);
      if (shape.empty()) shape = own;
      const bool fits = own.size() == shape.size() && own.size() < AS_MAX_RANK &&
                        std::equal(own.begin(), own.end() - 1, shape.begin()) &&
                        (own.back() == shape.back() || own.size() > 1);
      if (!fits || !has_value((*found)->type)) {
        return bad_input(fmt::format("{}: {} of {} [{}] does not lie behind the first, {} [{}]",
                                     map_.op.name, shown_name((*found)->name),
                                     element_name((*found)->type), fmt::join(own, ","),
                                     shown_name(parts.empty() ? name : parts.front().first->name),
                                     fmt::join(shape, ",")),
                         "tensors of a \"stack\" have one shape");
      }
      shape.back() = std::max(shape.back(), own.back());
      parts.emplace_back(*found, *seen);
    }
    shape.insert(shape.begin(), std::ssize(parts));
    const as_tensor to = make(shape, dtype_named(split(tap.dtype, '|').front()));
    const std::int64_t size = as_dtype_size(to.dtype), width = shape.back();
    auto* bytes = static_cast<std::uint8_t*>(to.data);
    std::memset(bytes, 0, static_cast<std::size_t>(as_tensor_numel(&to) * size));
    for (std::size_t p = 0; p < parts.size(); ++p) {
      const auto& [e, seen] = parts[p];
      const std::int64_t columns = std::max<std::int64_t>(1, seen.shape[seen.rank - 1]);
      for (std::int64_t i = 0; i < as_tensor_numel(&seen); ++i) {
        const std::uint8_t* from = e->data + offset_of(t, seen, i) * (element_bits(e->type) / 8);
        std::uint8_t* put = bytes + (static_cast<std::int64_t>(p) * to.stride[0] +
                                     i / columns * width + i % columns) *
                                        size;
        const double value = value_of(e->type, from);
        if (!put_value(value, to.dtype, false, put)) return no_value(value, e->name, to.dtype);
      }
    }
    tensor_at(params_.data(), tap.offset) = to;
    return {};
  }

  // The view made dense, its axes as long as "pad" says.
  Result<as_tensor> padded_view(const ImportTensor& t, const as_tensor& view, bool floats,
                                const char* tap) const {
    as_tensor out = view;
    const auto wrong = [&](const std::string& what) {
      return bad_input(fmt::format("{}: pad of {}: {}", map_.op.name, tap, what),
                       "give the size of each axis, at least what the tensor has");
    };
    if (!t.pad.empty() && t.pad.size() != static_cast<std::size_t>(view.rank)) {
      return wrong(fmt::format("{} numbers for {} axes", t.pad.size(), view.rank));
    }
    if (!t.pad.empty() && !floats) return wrong("zeros stand for nothing in codes and integers");
    std::int64_t stride = 1;
    for (std::int32_t a = view.rank - 1; a >= 0; --a) {
      if (!t.pad.empty()) out.shape[a] = t.pad[static_cast<std::size_t>(a)];
      if (out.shape[a] < view.shape[a]) {
        return wrong(fmt::format("{} is below the {} there are", out.shape[a], view.shape[a]));
      }
      out.stride[a] = stride;
      stride *= std::max<std::int64_t>(1, out.shape[a]);
      if (stride > std::max(as_tensor_numel(&view), kMostRepeated)) {
        return wrong(fmt::format("more than {} elements", kMostRepeated));
      }
    }
    return out;
  }

  // Where element i of a view lies in its padded, dense copy.
  static std::int64_t place_of(const as_tensor& padded, const as_tensor& view, std::int64_t i) {
    std::int64_t place = 0;
    for (std::int32_t a = view.rank - 1; a >= 0; --a) {
      place += i % view.shape[a] * padded.stride[a];
      i /= view.shape[a];
    }
    return place;
  }

  Result<void> cache(const as_tap_info& tap) {
    const auto it = map_.caches.find(tap.name);
    if (it == map_.caches.end()) return {};
    ImportCache c = it->second;
    c.name = with_layer(c.name, layer_);
    c.scales = with_layer(c.scales, layer_);
    if (is_extra(tap.name) && find(files_, c.name) == nullptr) return {};
    auto found = entry(c.name);
    if (!found) return found.error();
    std::span<const std::uint8_t> scales;
    if (!c.scales.empty()) {
      auto apart = entry(c.scales);
      if (!apart) return apart.error();
      scales = {(*apart)->data, (*apart)->bytes};
    }
    const std::int64_t first = (*found)->shape.empty() ? 0 : (*found)->shape[0];
    auto pages = import_pages(c, {(*found)->data, (*found)->bytes}, first, scales);
    if (!pages) return pages.error();
    ImportedPages& mine = pages_[tap.name] = std::move(*pages);
    as_cache& to = cache_at(params_.data(), tap.offset);
    to.record = c.record;
    to.addressing = AS_PAGED;
    to.rows_per_block = c.rows_per_block;
    to.width = c.width;
    to.data = make_tensor(mine.bytes.data(), {mine.blocks, mine.page_bytes});
    return {};
  }

  // That of an input which has the same choice of types; else the first.
  std::int32_t output_dtype(const as_tap_info& tap) const {
    for (const as_tap_info& other : map_.op.taps) {
      if (other.kind != AS_TAP_TENSOR || other.direction != AS_TAP_IN) continue;
      const as_tensor& t = tensor_at(params_.data(), other.offset);
      if (std::string_view(other.dtype) == tap.dtype && present(t)) return t.dtype;
    }
    return dtype_named(split(tap.dtype, '|').front());
  }

  Result<void> sizes_fit() const {
    const std::vector<std::string> wrong = size_violations(map_.op, params_.data());
    if (wrong.empty()) return {};
    return bad_input(fmt::format("{}: {}", map_.op.name, fmt::join(wrong, "; ")),
                     "cut what is longer with \"shape\"; \"pad\" puts zeros behind values, where "
                     "the op's result is the same with them");
  }

  // Classes that the map names for outputs.
  Result<void> name_classes(OpCase& kept) {
    for (const auto& [tap, t] : map_.tensors) {
      if (t.tolerance.empty() || !kept.tensors.contains(tap) || unknown_.contains(tap)) continue;
      auto tolerances = Tolerances::load();
      if (!tolerances) return tolerances.error();
      const auto found = tolerances->classes().find(t.tolerance);
      if (found == tolerances->classes().end()) {
        std::vector<std::string> names;
        names.reserve(tolerances->classes().size());
        for (const auto& [name, c] : tolerances->classes()) names.push_back(name);
        return bad_input(fmt::format("{}: class {} of {} is none of the tolerance file's",
                                     map_.op.name, shown_name(t.tolerance), tap),
                         fmt::format("classes: {}", fmt::join(names, ", ")));
      }
      kept.classes[tap] = t.tolerance;
      notes_.push_back(
          fmt::format("{} is held against class {}: {}", tap, t.tolerance, found->second.reason));
    }
    return {};
  }

  // Tensors that the op writes and the dump has not: their shape follows from the letters.
  Result<void> missing_outputs() {
    std::map<std::string, std::int64_t> sizes;
    for (const as_tap_info& tap : map_.op.taps) {
      if (tap.kind != AS_TAP_TENSOR || !present(tensor_at(params_.data(), tap.offset))) continue;
      const as_tensor& t = tensor_at(params_.data(), tap.offset);
      const std::vector<std::string> letters = split(tap.axes, ',');
      for (std::int32_t a = 0; a < t.rank; ++a) {
        sizes.emplace(letters[static_cast<std::size_t>(a)], t.shape[a]);
      }
    }
    for (const as_tap_info& tap : map_.op.taps) {
      if (tap.kind != AS_TAP_TENSOR || tap.direction != AS_TAP_OUT || tap.optional != 0) continue;
      as_tensor& t = tensor_at(params_.data(), tap.offset);
      if (present(t)) continue;
      as_tensor made{};
      std::int64_t count = 1;
      for (const std::string& letter : split(tap.axes, ',')) {
        const auto it = sizes.find(letter);
        if (it == sizes.end()) {
          made.rank = -1;
          break;
        }
        made.shape[made.rank++] = it->second;
        count *= it->second;
      }
      if (made.rank < 0) continue;  // the lane says whether it can do without
      std::int64_t stride = 1;
      for (std::int32_t a = made.rank - 1; a >= 0; --a) {
        made.stride[a] = stride;
        stride *= std::max<std::int64_t>(1, made.shape[a]);
      }
      made.dtype = output_dtype(tap);
      made.data = allocate(count * as_dtype_size(made.dtype));
      t = made;
      unknown_.insert(tap.name);
      notes_.push_back(fmt::format("{} is not in the dump: it is not compared", tap.name));
    }
    return {};
  }

  Result<void> rope(const as_param_info& field) {
    const auto it = map_.ropes.find(field.name);
    if (it == map_.ropes.end()) {
      return bad_input(fmt::format("{}: the map gives no {}", map_.op.name, field.name),
                       "add it under \"ropes\": base, factor, or the name of its table");
    }
    const ImportRope& from = it->second;
    as_rope& to = rope_at(params_.data(), field.offset);
    to.base = from.base;
    to.factor = from.factor;
    to.original_max_pos = from.original_max_pos;
    to.beta_fast = from.beta_fast;
    to.beta_slow = from.beta_slow;
    to.table.reserved = from.frequencies;
    if (!from.table.empty()) {
      auto found = entry(from.table);
      if (!found) return found.error();
      const TensorEntry& e = **found;
      if (!is_float(e.type) || e.shape.size() != 2 || e.shape[1] != AS_ROPE_DIM) {
        return bad_input(fmt::format("{}: tensor {} is no table of floats [positions,64]",
                                     map_.op.name, shown_name(e.name)));
      }
      auto* table = static_cast<float*>(allocate(e.elements * 4));
      for (std::int64_t i = 0; i < e.elements; ++i) {
        table[i] = static_cast<float>(value_of(e.type, e.data + i * (element_bits(e.type) / 8)));
      }
      if (auto ok = is_table_of(to, table, e); !ok) return ok;
      set_rope_table(to, table, e.shape[0]);
      notes_.push_back(fmt::format("{} is the dump's, in {}{}", field.name, element_name(e.type),
                                   e.type == ElementType::kF64 ? " rounded once to fp32" : ""));
      return {};
    }
    auto reached = positions();
    if (!reached) return reached.error();
    const std::int64_t rows = *reached;
    auto* table = static_cast<float*>(allocate(rows * AS_ROPE_DIM * 4));
    cpu::build_rope_table(to, rows, table, nullptr);
    set_rope_table(to, table, rows);
    notes_.push_back(fmt::format("{}'s table is computed from its numbers, with {} frequencies",
                                 field.name, from.frequencies == AS_ROPE_FP32 ? "fp32" : "fp64"));
    return {};
  }

  // Positions that the op's tokens reach, 1 without any.
  Result<std::int64_t> positions() const {
    std::int64_t rows = 1;
    for (const as_tap_info& tap : map_.op.taps) {
      const as_tensor& t = tensor_at(params_.data(), tap.offset);
      if (std::string_view(tap.name) != "positions" || t.dtype != AS_I64) continue;
      for (std::int64_t i = 0; t.data != nullptr && i < t.shape[0]; ++i) {
        rows = std::max(rows, *at<std::int64_t>(t, i) + 1);
      }
    }
    if (rows > (std::int64_t{1} << 24)) {
      return bad_input(fmt::format("{}: position {} is beyond any model", map_.op.name, rows - 1));
    }
    return rows;
  }

  // A table of another layer type is found at once; the angles of far positions differ by what
  // float32 makes of them, all of them by their own type.
  Result<void> is_table_of(const as_rope& rope, const float* table, const TensorEntry& e) const {
    const std::int64_t rows = std::min<std::int64_t>(e.shape[0], 4096);
    std::vector<float> expected(static_cast<std::size_t>(rows * AS_ROPE_DIM));
    cpu::build_rope_table(rope, rows, expected.data(), nullptr);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const float value = table[i];
      if (std::fabs(value - expected[i]) < 0.01f) continue;
      return bad_input(
          fmt::format(
              "{}: {} is no table of base {:g} and factor {:g}: {:.4f} instead of {:.4f} at "
              "position {}, column {}",
              map_.op.name, shown_name(e.name), rope.base, rope.factor, value, expected[i],
              i / AS_ROPE_DIM, i % AS_ROPE_DIM),
          "give the numbers of this layer: layers without entries have a base of their own and "
          "factor 1");
    }
    return {};
  }

  // What keep_case() walks: every tensor that its lists are made of.
  Result<void> lists_are_whole() {
    for (const as_tap_info& tap : map_.op.taps) {
      const bool is_cache = tap.kind == AS_TAP_CACHE;
      const bool there = is_cache ? cache_at(params_.data(), tap.offset).record != AS_RECORD_NONE
                                  : present(tensor_at(params_.data(), tap.offset));
      const bool extra = is_extra(tap.name);
      // Of codes alone; the op itself asks for it then.
      const bool scale = std::string_view(tap.name).ends_with("_scale");
      // What a struct has got since means nothing else where it is not there.
      const bool later = tap.offset >= as_op_find(map_.op.id)->first_size;
      if (!there && tap.direction == AS_TAP_IN && !extra && !scale && !later) {
        return bad_input(fmt::format("{}: the map gives no {}", map_.op.name, tap.name),
                         fmt::format("add it under \"{}\"", is_cache ? "caches" : "tensors"));
      }
    }
    std::vector<const char*> there, missing;
    for (const as_tap_info& tap : map_.op.taps) {
      if (!is_extra(tap.name)) continue;
      const bool has = tap.kind == AS_TAP_CACHE
                           ? cache_at(params_.data(), tap.offset).record != AS_RECORD_NONE
                           : present(tensor_at(params_.data(), tap.offset));
      (has ? there : missing).push_back(tap.name);
    }
    if (!there.empty() && !missing.empty()) {
      return bad_input(fmt::format("{}: {} is there, {} is not", map_.op.name,
                                   fmt::join(there, ", "), fmt::join(missing, ", ")),
                       "they go together: dump all of them, or none for a layer without entries");
    }
    if (!missing.empty()) {
      notes_.push_back(fmt::format("{} are not in the dump: attention over the window alone",
                                   fmt::join(missing, ", ")));
    }
    return {};
  }

  const ImportOp& map_;
  const std::vector<TensorFile>& files_;
  int layer_;
  std::vector<std::uint64_t> params_;
  std::vector<std::vector<std::uint64_t>> memory_;
  std::list<JoinedEntry> joined_;
  std::map<std::string, ImportedPages> pages_;
  std::set<std::string> unknown_;
  std::vector<std::string> notes_;
};

}  // namespace

bool has_inputs(const ImportOp& op, const std::vector<TensorFile>& files, int layer) {
  const auto has = [&](const std::string& name) {
    return name.empty() || find(files, with_layer(name, layer)) != nullptr;
  };
  for (const as_tap_info& tap : op.op.taps) {
    if (is_extra(tap.name)) continue;
    if (tap.direction == AS_TAP_OUT && tap.kind == AS_TAP_TENSOR) continue;
    if (const auto t = op.tensors.find(tap.name); t != op.tensors.end()) {
      if (!has_all_of(t->second, files, layer)) return false;
    }
    if (const auto c = op.caches.find(tap.name); c != op.caches.end()) {
      if (!has(c->second.name) || !has(c->second.scales)) return false;
    }
  }
  return std::all_of(op.ropes.begin(), op.ropes.end(),
                     [&](const auto& rope) { return has(rope.second.table); });
}

bool has_tensor(const ImportTensor& tensor, const std::vector<TensorFile>& files) {
  return has_all_of(tensor, files, 0);
}

Result<std::vector<std::int64_t>> import_integers(const ImportTensor& tensor, const char* what,
                                                  const std::vector<TensorFile>& files) {
  ImportOp named;
  named.op.name = what;
  return CaseImporter(named, files, 0).integers(tensor);
}

Result<ImportedCase> import_case(const ImportOp& op, const std::vector<TensorFile>& files,
                                 const std::string& engine, int layer) {
  return CaseImporter(op, files, layer).make(engine);
}

}  // namespace attnscope
