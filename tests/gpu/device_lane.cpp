#include "tests/gpu/device_lane.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>
#include <vector>

#include "engine/backend/host_ops.h"
#include "engine/session/device/residency.h"
#include "engine/session/step/op_params.h"
#include "kernels/cuda/cuda_lane.h"
#include "kernels/cuda/device.h"
#include "kernels/layout/records.h"
#include "kernels/params/helper_params.h"
#include "kernels/params/mla_params.h"
#include "kernels/params/offload_params.h"
#include "kernels/params/paged_params.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::gpu_tests {
namespace {

using cuda::DeviceMemory;
using cuda::Graph;
using cuda::Stream;

constexpr unsigned char kPoison = 0xff;
constexpr std::int64_t kAlignment = 16;

// A host tensor and the image of its layout on the GPU.
struct Image {
  as_tensor host{};
  as_tensor device{};
  bool written = false;
  std::vector<unsigned char> bytes;   // as uploaded
  std::vector<unsigned char> result;  // after the last run
  DeviceMemory memory;

  // Rows of the last axis, or pages: host address, offset in the image, bytes.
  template <class Visit>
  void for_each_row(const Visit& visit) const {
    const std::int64_t size = as_dtype_size(host.dtype);
    if (as_tensor_numel(&host) == 0) return;
    const std::int64_t columns = host.shape[host.rank - 1];
    const std::int64_t rows = as_tensor_numel(&host) / columns;
    for (std::int64_t row = 0; row < rows; ++row) {
      std::int64_t from = 0, to = 0, left = row;
      for (std::int32_t axis = host.rank - 2; axis >= 0; --axis) {
        from += left % host.shape[axis] * host.stride[axis];
        to += left % host.shape[axis] * device.stride[axis];
        left /= host.shape[axis];
      }
      visit(static_cast<unsigned char*>(host.data) + from * size,
            static_cast<std::size_t>(to * size), static_cast<std::size_t>(columns * size));
    }
  }

  void read_host() {
    for_each_row([&](const unsigned char* from, std::size_t to, std::size_t size) {
      std::memcpy(bytes.data() + to, from, size);
    });
  }
  void write_host() const {
    for_each_row([&](unsigned char* to, std::size_t from, std::size_t size) {
      std::memcpy(to, result.data() + from, size);
    });
  }
};

Result<Image> make_image(const as_tensor& host, bool written) {
  Image image;
  image.host = host;
  image.written = written;
  as_tensor& device = image.device;
  device = host;
  const std::int64_t size = as_dtype_size(host.dtype);
  std::int64_t stride = 1;
  for (std::int32_t i = host.rank - 1; i >= 0; --i) {
    if (i == 0 && host.rank > 1) stride = as_round_up(stride * size, kAlignment) / size + 16;
    device.stride[i] = stride;
    stride *= host.shape[i];
  }
  image.bytes.assign(static_cast<std::size_t>(stride * size + kAlignment), kPoison);
  image.read_host();
  auto memory = DeviceMemory::allocate(image.bytes.size());
  if (!memory) return memory.error();
  image.memory = std::move(*memory);
  device.data = image.memory.data();
  device.device = 1;
  return image;
}

Result<void> upload(const Stream& stream, const std::vector<Image>& images) {
  for (const Image& image : images) {
    auto ok = stream.upload(image.memory.data(), image.bytes.data(), image.bytes.size());
    if (!ok) return ok;
  }
  return stream.synchronize();
}

Result<void> download(const Stream& stream, std::vector<Image>* images) {
  for (Image& image : *images) {
    image.result.resize(image.bytes.size());
    auto ok = stream.download(image.result.data(), image.memory.data(), image.result.size());
    if (!ok) return ok;
  }
  return stream.synchronize();
}

Result<void> call_op(int op, const void* params, const Stream& stream) {
  as_call call{};
  call.struct_size = sizeof(call);
  call.stream = stream.handle();
  as_error error{};
  const as_op_fn function = cuda::lane()->ops[op];
  const std::int32_t status = function(params, &call, &error);
  if (status != AS_OK) return Error{static_cast<as_status>(status), error.message, {}};
  return {};
}

// Bytes that no output may touch: inputs, and what lies between the rows of outputs.
Result<void> check_untouched(const Image& image, const char* name) {
  std::vector<unsigned char> expected = image.bytes;
  if (image.written) {
    image.for_each_row([&](const unsigned char*, std::size_t to, std::size_t bytes) {
      std::memcpy(expected.data() + to, image.result.data() + to, bytes);
    });
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (expected[i] == image.result[i]) continue;
    return Error{AS_INTERNAL, fmt::format("{}: byte {} was overwritten on the GPU", name, i), {}};
  }
  return {};
}

// A params struct of a helper op, with what OpParams offers for the ops of the table.
class HelperParams {
 public:
  void set(as_op_id id, const void* params) {
    id_ = id;
    storage_.resize(as_op_find(id)->params_size);
    std::memcpy(storage_.data(), params, storage_.size());
  }
  int op() const { return id_; }
  const as_op_info& info() const { return *as_op_find(id_); }
  void* data() { return storage_.data(); }
  as_tensor& tensor(std::size_t offset) {
    return *reinterpret_cast<as_tensor*>(storage_.data() + offset);
  }
  as_cache& cache(std::size_t offset) {
    return *reinterpret_cast<as_cache*>(storage_.data() + offset);
  }

 private:
  as_op_id id_ = AS_OP_MERGE_STATES;
  std::vector<unsigned char> storage_;
};

bool is_written(const OpParams&, const as_tap_info& tap) { return tap.direction == AS_TAP_OUT; }
bool is_written(HelperParams& params, const as_tap_info& tap) {
  if (tap.direction == AS_TAP_OUT) return true;
  return params.op() == AS_OP_COPY_BLOCKS && tap.offset == offsetof(as_copy_blocks_params, from) &&
         static_cast<const as_copy_blocks_params*>(params.data())->exchange != 0;
}

// An op's params with its tensors on the GPU.
template <class Params>
class Call {
 public:
  Result<void> stage(const Params& host) {
    params_ = host;
    const auto& info = params_.info();
    for (std::uint32_t i = 0; i < info.num_taps; ++i) {
      const as_tap_info& tap = info.taps[i];
      const bool cache = tap.kind == AS_TAP_CACHE;
      as_tensor& t = cache ? params_.cache(tap.offset).data : params_.tensor(tap.offset);
      if (auto ok = add(t, is_written(params_, tap), tap.name); !ok) return ok;
    }
    if (as_rope* rope = rope_of(params_)) return add(rope->table, false, "rope.table");
    return {};
  }

  Result<void> run() {
    static const Result<Stream> direct = Stream::create();
    static const Result<Stream> replayed = Stream::create();
    if (!direct || !replayed) return (direct ? replayed : direct).error();
    const auto work = [&](const Stream& stream) {
      return call_op(params_.op(), params_.data(), stream);
    };
    // The first call gives the replaying stream its workspace.
    if (auto ok = upload(*replayed, images_); !ok) return ok;
    if (auto ok = work(*replayed); !ok) return ok;
    if (auto ok = replayed->synchronize(); !ok) return ok;
    if (auto ok = upload(*direct, images_); !ok) return ok;
    if (auto ok = work(*direct); !ok) return ok;
    if (auto ok = download(*direct, &images_); !ok) return ok;
    std::vector<std::vector<unsigned char>> first;
    for (Image& image : images_) first.push_back(std::move(image.result));
    auto graph = Graph::capture(*replayed, [&] { return work(*replayed); });
    if (!graph) return graph.error();
    if (auto ok = upload(*replayed, images_); !ok) return ok;
    if (auto ok = graph->launch(*replayed); !ok) return ok;
    if (auto ok = download(*replayed, &images_); !ok) return ok;
    for (std::size_t i = 0; i < images_.size(); ++i) {
      if (images_[i].result != first[i]) {
        return Error{AS_INTERNAL, names_[i] + ": a second run, from a graph, gave other bytes", {}};
      }
      if (auto ok = check_untouched(images_[i], names_[i].c_str()); !ok) return ok;
    }
    write_back();
    return {};
  }

  // A graph captured on these tensors, replayed on those of `changed`.
  Result<void> replay(const Params& changed) {
    static const Result<Stream> stream = Stream::create();
    if (!stream) return stream.error();
    const auto work = [&] { return call_op(params_.op(), params_.data(), *stream); };
    if (auto ok = upload(*stream, images_); !ok) return ok;
    if (auto ok = work(); !ok) return ok;
    if (auto ok = stream->synchronize(); !ok) return ok;
    auto graph = Graph::capture(*stream, work);
    if (!graph) return graph.error();
    Call<Params> other;
    if (auto ok = other.stage(changed); !ok) return ok;
    for (std::size_t i = 0; i < images_.size(); ++i) {
      if (images_[i].bytes.size() != other.images_[i].bytes.size()) {
        return Error{AS_INTERNAL, names_[i] + ": the changed tensor has another shape", {}};
      }
      images_[i].host = other.images_[i].host;
      images_[i].bytes = other.images_[i].bytes;
    }
    if (auto ok = upload(*stream, images_); !ok) return ok;
    if (auto ok = graph->launch(*stream); !ok) return ok;
    if (auto ok = download(*stream, &images_); !ok) return ok;
    write_back();
    return {};
  }

 private:
  void write_back() const {
    for (const Image& image : images_) {
      if (image.written) image.write_host();
    }
  }

  static as_rope* rope_of(HelperParams& params) {
    if (params.op() != AS_OP_INVERSE_ROPE_QUANTISE) return nullptr;
    return &static_cast<as_inverse_rope_quantise_params*>(params.data())->rope;
  }
  static as_rope* rope_of(OpParams& params) { return attnscope::rope_of(params); }

  Result<void> add(as_tensor& t, bool written, const char* name) {
    if (!present(t)) return {};
    // Two names of one tensor stay one.
    for (Image& image : images_) {
      if (image.host.data != t.data || as_tensor_numel(&t) == 0) continue;
      image.written = image.written || written;
      t = image.device;
      return {};
    }
    auto image = make_image(t, written);
    if (!image) return image.error();
    images_.push_back(std::move(*image));
    names_.emplace_back(name);
    t = images_.back().device;
    return {};
  }

  Params params_;
  std::vector<Image> images_;
  std::vector<std::string> names_;
};

template <class Params>
std::int32_t run_params(as_op_id op, const void* params, as_error* error) {
  OpParams host;
  host.init<Params>(op) = *static_cast<const Params*>(params);
  Call<OpParams> call;
  Result<void> ok = call.stage(host);
  if (ok) ok = call.run();
  return ok ? AS_OK : fail(error, ok.error().code, ok.error().text().c_str());
}

template <as_op_id Op, class Params>
std::int32_t entry(const void* params, const as_call*, as_error* error) {
  return run_params<Params>(Op, params, error);
}

template <int id>
std::int32_t helper_entry(const void* params, const as_call*, as_error* error) {
  HelperParams host;
  host.set(static_cast<as_op_id>(id), params);
  Call<HelperParams> call;
  Result<void> ok = call.stage(host);
  if (ok) ok = call.run();
  return ok ? AS_OK : fail(error, ok.error().code, ok.error().text().c_str());
}

template <int id>
void fill_helpers(Lane* lane) {
  if constexpr (id < AS_END_OF_HELPERS) {
    lane->ops[id] = helper_entry<id>;
    fill_helpers<id + 1>(lane);
  }
}

Lane make_lane() {
  Lane lane = *cuda::lane();
  lane.name = "cuda (GPU tensors)";
#define AS_ENTRY(id, number, params, function) lane.ops[id] = entry<id, params>;
  AS_FOR_EACH_KERNEL(AS_ENTRY)
#undef AS_ENTRY
  fill_helpers<AS_FIRST_HELPER>(&lane);
  return lane;
}

}  // namespace

Result<void> replay_with(const OpParams& captured, const OpParams& changed) {
  Call<OpParams> call;
  if (auto ok = call.stage(captured); !ok) return ok;
  return call.replay(changed);
}

const Lane& device_lane() {
  static const Lane kLane = make_lane();
  return kLane;
}

}  // namespace attnscope::gpu_tests
