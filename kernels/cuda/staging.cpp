#include "kernels/cuda/staging.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "kernels/cpu/parallel.h"
#include "kernels/layout/records.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cuda {
namespace {

constexpr std::size_t kMirrorFrom = 64u << 10;  // bytes; smaller tensors travel with the call
constexpr std::size_t kReserve = 1u << 30;      // GPU memory that mirrors leave free
constexpr std::int64_t kHashPart = 256 * 1024;  // bytes hashed by one thread at once

// Eight lanes of 64-bit multiply and rotate, so that memory sets the pace.
std::uint64_t hash_part(const unsigned char* p, std::int64_t bytes) {
  constexpr std::uint64_t kPrime = 0x9e3779b97f4a7c15u;
  std::uint64_t lanes[8];
  for (std::uint64_t i = 0; i < 8; ++i) lanes[i] = (i + 1) * kPrime;
  std::int64_t at = 0;
  for (; at + 64 <= bytes; at += 64) {
    std::uint64_t words[8];
    std::memcpy(words, p + at, sizeof(words));
    for (int i = 0; i < 8; ++i) {
      lanes[i] = (lanes[i] ^ words[i]) * kPrime;
      lanes[i] ^= lanes[i] >> 29;
    }
  }
  std::uint64_t hash = static_cast<std::uint64_t>(bytes);
  for (; at < bytes; ++at) hash = (hash ^ p[at]) * kPrime;
  for (std::uint64_t lane : lanes) hash = ((hash ^ lane) * kPrime) ^ (hash >> 31);
  return hash;
}

std::uint64_t hash_bytes(const void* data, std::size_t bytes, const as_threads* threads) {
  const auto* p = static_cast<const unsigned char*>(data);
  const auto size = static_cast<std::int64_t>(bytes);
  const std::int64_t parts = (size + kHashPart - 1) / kHashPart;
  std::vector<std::uint64_t> hashes(static_cast<std::size_t>(parts));
  cpu::parallel_for(threads, parts, 4, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t first = i * kHashPart;
      hashes[static_cast<std::size_t>(i)] = hash_part(p + first, std::min(kHashPart, size - first));
    }
  });
  return hash_part(reinterpret_cast<const unsigned char*>(hashes.data()), 8 * parts);
}

bool is_dense(const as_tensor& t) {
  std::int64_t stride = 1;
  for (std::int32_t i = t.rank - 1; i >= 0; --i) {
    if (t.shape[i] != 1 && t.stride[i] != stride) return false;
    stride *= t.shape[i];
  }
  return true;
}

// Weights stay the same from step to step.
bool is_weight(const as_tap_info& tap) {
  return tap.direction == AS_TAP_IN && std::string_view(tap.name).ends_with("weight");
}

std::int64_t round_up_16(std::int64_t n) { return (n + 15) / 16 * 16; }

}  // namespace

Result<unsigned char*> Arena::take(std::size_t bytes) {
  const std::size_t rounded = (bytes / kAlignment + 1) * kAlignment;
  total_ += rounded;
  if (chunks_.empty() || chunks_.back().size() - used_ < rounded) {
    auto chunk = DeviceMemory::allocate(std::max<std::size_t>(rounded, 1u << 20));
    if (!chunk) return chunk.error();
    chunks_.push_back(std::move(*chunk));
    used_ = 0;
  }
  unsigned char* piece = chunks_.back().data() + used_;
  used_ += rounded;
  return piece;
}

void Arena::reset() {
  // One chunk for all that was needed, so that the next such call finds it.
  if (chunks_.size() > 1) {
    chunks_.clear();
    if (auto chunk = DeviceMemory::allocate(total_)) chunks_.push_back(std::move(*chunk));
  }
  used_ = 0;
  total_ = 0;
}

void WeightMirrors::make_room(std::size_t bytes) {
  while (!mirrors_.empty()) {
    const auto device = Device::get();
    if (device && (*device)->free_memory() >= bytes + kReserve) return;
    mirrors_.erase(std::min_element(
        mirrors_.begin(), mirrors_.end(),
        [](const auto& a, const auto& b) { return a.second.last_used < b.second.last_used; }));
  }
}

Result<unsigned char*> WeightMirrors::get(const void* host, std::size_t bytes, const Stream& stream,
                                          const as_threads* threads) {
  const std::uint64_t hash = hash_bytes(host, bytes, threads);
  auto it = mirrors_.find(host);
  if (it != mirrors_.end() && it->second.memory.size() != bytes) {
    mirrors_.erase(it);
    it = mirrors_.end();
  }
  const bool fresh = it == mirrors_.end();
  if (fresh) {
    make_room(bytes);
    auto memory = DeviceMemory::allocate(bytes);
    if (!memory) return memory.error();
    it = mirrors_.emplace(host, Mirror{std::move(*memory), hash, 0}).first;
  }
  Mirror& mirror = it->second;
  mirror.last_used = ++clock_;
  if (fresh || mirror.hash != hash) {
    mirror.hash = hash;
    if (auto ok = stream.upload(mirror.memory.data(), host, bytes); !ok) {
      mirrors_.erase(it);
      return ok.error();
    }
  }
  return mirror.memory.data();
}

void Staging::keep(Result<void> result) {
  if (ok_ && !result) ok_ = std::move(result);
}

unsigned char* Staging::take(std::size_t bytes) {
  if (!ok_) return nullptr;
  auto piece = arena_.take(bytes);
  if (piece) return *piece;
  ok_ = piece.error();
  return nullptr;
}

unsigned char* Staging::workspace(std::size_t bytes) { return take(bytes); }

void Staging::copy(void* host, void* device, std::int64_t host_pitch, std::int64_t device_pitch,
                   std::int64_t row_bytes, std::int64_t rows, Way way) {
  if (!ok_ || rows == 0 || row_bytes == 0) return;
  const auto size = [](std::int64_t n) { return static_cast<std::size_t>(n); };
  const auto stream = static_cast<cudaStream_t>(stream_.handle());
  // A single row has no pitch to speak of.
  host_pitch = rows == 1 ? row_bytes : host_pitch;
  device_pitch = rows == 1 ? row_bytes : device_pitch;
  const cudaError_t code =
      way == Way::kUp
          ? cudaMemcpy2DAsync(device, size(device_pitch), host, size(host_pitch), size(row_bytes),
                              size(rows), cudaMemcpyHostToDevice, stream)
          : cudaMemcpy2DAsync(host, size(host_pitch), device, size(device_pitch), size(row_bytes),
                              size(rows), cudaMemcpyDeviceToHost, stream);
  if (code != cudaSuccess) ok_ = device_error(code, "copy between host and GPU");
}

void Staging::copy_tensor(const as_tensor& host, unsigned char* device, Way way) {
  const std::int64_t size = as_dtype_size(host.dtype);
  if (as_tensor_numel(&host) == 0) return;
  // The last axes that lie side by side are one run; the axis before them gives rows.
  std::int64_t run = 1;
  std::int32_t axis = host.rank - 1;
  for (; axis >= 0 && (host.shape[axis] == 1 || host.stride[axis] == run); --axis) {
    run *= host.shape[axis];
  }
  const std::int64_t rows = axis >= 0 ? host.shape[axis] : 1;
  const std::int64_t pitch = axis >= 0 ? host.stride[axis] : run;
  std::int64_t outer = 1;
  for (std::int32_t i = 0; i < axis; ++i) outer *= host.shape[i];
  for (std::int64_t item = 0; item < outer; ++item) {
    std::int64_t offset = 0;
    std::int64_t left = item;
    for (std::int32_t i = axis - 1; i >= 0; --i) {
      offset += left % host.shape[i] * host.stride[i];
      left /= host.shape[i];
    }
    copy(static_cast<char*>(host.data) + offset * size, device + item * rows * run * size,
         pitch * size, run * size, run * size, rows, way);
  }
}

void Staging::tensor(as_tensor& t, const as_tap_info& tap) {
  if (t.data == nullptr && t.rank == 0) return;
  const as_tensor host = t;
  const auto bytes = static_cast<std::size_t>(as_tensor_numel(&t) * as_dtype_size(t.dtype));
  unsigned char* device = nullptr;
  if (is_weight(tap) && bytes >= kMirrorFrom && is_dense(t)) {
    auto mirror = weights_.get(t.data, bytes, stream_, threads_);
    if (!mirror) return keep(mirror.error());
    device = *mirror;
  } else {
    device = take(bytes);
    if (device == nullptr) return;
    // Outputs that an op fills in part keep what the rest held; an optional one may be given as the
    // row before quantisation.
    if (tap.direction == AS_TAP_IN || tap.mask != AS_MASK_ALL || tap.optional != 0) {
      copy_tensor(host, device, Way::kUp);
    }
    if (tap.direction == AS_TAP_OUT) {
      back_.push_back([this, host, device] { copy_tensor(host, device, Way::kDown); });
    }
  }
  t.data = device;
  t.device = 1;
  std::int64_t stride = 1;
  for (std::int32_t i = t.rank - 1; i >= 0; --i) {
    t.stride[i] = stride;
    stride *= t.shape[i];
  }
}

void Staging::tensors(const Taps& taps, void* params) {
  for (std::uint32_t i = 0; i < taps.count; ++i) {
    const as_tap_info& tap = taps.items[i];
    if (tap.kind != AS_TAP_TENSOR) continue;
    tensor(*reinterpret_cast<as_tensor*>(static_cast<char*>(params) + tap.offset), tap);
  }
}

void Staging::copy_blocks(const as_cache& host, unsigned char* device, std::int64_t pitch,
                          const Blocks& blocks, Way way) {
  const std::int64_t size = as_dtype_size(host.data.dtype);
  const std::int64_t stride = host.data.stride[0] * size;
  const std::int64_t bytes = host.data.shape[1] * size;
  // Neighbouring blocks travel together.
  for (std::size_t i = 0; i < blocks.size();) {
    std::size_t end = i + 1;
    while (end < blocks.size() && blocks[end] == blocks[end - 1] + 1) ++end;
    copy(static_cast<char*>(host.data.data) + blocks[i] * stride, device + blocks[i] * pitch,
         stride, pitch, bytes, static_cast<std::int64_t>(end - i), way);
    i = end;
  }
}

void Staging::cache(as_cache& c, Blocks blocks, bool written) {
  const as_cache host = c;
  std::sort(blocks.begin(), blocks.end());
  blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());
  const std::int64_t size = as_dtype_size(c.data.dtype);
  const std::int64_t pitch = round_up_16(c.data.shape[1] * size);
  const std::int64_t count = blocks.empty() ? 0 : blocks.back() + 1;
  unsigned char* device = take(static_cast<std::size_t>(count * pitch));
  if (device == nullptr) return;
  copy_blocks(host, device, pitch, blocks, Way::kUp);
  if (written) {
    back_.push_back([this, host, device, pitch, blocks = std::move(blocks)] {
      copy_blocks(host, device, pitch, blocks, Way::kDown);
    });
  }
  c.data.data = device;
  c.data.device = 1;
  c.data.shape[0] = count;
  c.data.stride[0] = pitch / size;
}

void Staging::rope(as_rope& rope, std::int64_t first, std::int64_t last) {
  const as_tensor host = rope.table;
  as_tensor rows = host;
  rows.data = at<float>(host, first);
  rows.shape[0] = last + 1 - first;
  unsigned char* device = take(static_cast<std::size_t>(rows.shape[0] * rows.shape[1] * 4));
  if (device == nullptr) return;
  copy_tensor(rows, device, Way::kUp);
  // Addressed by position; rows before `first` are not there and not read.
  rope.table.data = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(device) -
                                            static_cast<std::uintptr_t>(first * rows.shape[1] * 4));
  rope.table.device = 1;
  rope.table.stride[0] = rows.shape[1];
}

Result<void> Staging::finish() {
  for (const auto& copy_back : back_) copy_back();
  Result<void> done = stream_.synchronize();
  keep(std::move(done));
  return ok_;
}

}  // namespace attnscope::cuda
