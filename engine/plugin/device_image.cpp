#include "engine/plugin/device_image.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "engine/model/memory.h"
#include "engine/model/numbers.h"
#include "kernels/params/row_format.h"

namespace attnscope {
namespace {

constexpr std::size_t kLeastRoom = std::size_t{2} << 20;  // bytes

}  // namespace

DeviceImage::~DeviceImage() {
  release_outgrown();
  if (room_ != nullptr) device_->release(room_);
}

void DeviceImage::clear() {
  forget();
  host_.clear();
  end_ = 0;
}

Result<void*> DeviceImage::allocate(std::int64_t bytes, const char* name, bool written) {
  if (regions().size() == kMostRegions)
    return internal_error("a plugin call with too many tensors");
  PluginRegion region{};
  region.bytes = std::max<std::int64_t>(1, bytes);
  region.start = kPluginPage;
  region.pages = as_round_up(region.bytes, kPluginPage) / kPluginPage + 2;
  region.offset = end_;
  region.written = written ? 1 : 0;
  std::strncpy(region.name, name, sizeof(region.name) - 1);
  const std::int64_t size = region.pages * kPluginPage;
  if (size > (std::int64_t{64} << 20)) {
    if (auto ok = check_memory(size); !ok) return ok.error();
  }
  host_.emplace_back(new (std::nothrow) std::uint8_t[to_size(size)]);
  if (host_.back() == nullptr) {
    return Error{AS_NO_ENVIRONMENT, fmt::format("{}: out of memory", name), {}};
  }
  add(region, host_.back().get());
  end_ += size;
  return host_.back().get() + region.start;
}

Result<void> DeviceImage::make_room(std::size_t bytes) {
  if (bytes <= capacity_) return {};
  std::size_t size = std::max({bytes, 2 * capacity_, kLeastRoom});
  auto room = device_->allocate(size);
  if (!room && size > bytes) room = device_->allocate(size = bytes);
  if (!room) return room.error();
  if (room_ != nullptr) outgrown_.push_back(room_);
  room_ = static_cast<std::uint8_t*>(*room);
  capacity_ = size;
  return {};
}

void DeviceImage::release_outgrown() {
  for (void* memory : outgrown_) device_->release(memory);
  outgrown_.clear();
}

Result<void> DeviceImage::upload() {
  if (auto ok = make_room(to_size(end_)); !ok) return ok;
  for (std::size_t i = 0; i < host_.size(); ++i) {
    const PluginRegion& r = regions()[i];
    const auto size = to_size(r.pages * kPluginPage);
    if (auto ok = device_->upload(room_ + r.offset, memory()[i], size); !ok) return ok;
  }
  return device_->synchronize();
}

Result<std::string> DeviceImage::download() {
  if (back_.size() < to_size(end_)) back_.resize(to_size(end_));
  if (auto ok = device_->download(back_.data(), room_, to_size(end_)); !ok) return ok.error();
  if (auto ok = device_->synchronize(); !ok) return ok.error();
  for (std::size_t i = 0; i < host_.size(); ++i) {
    const PluginRegion& r = regions()[i];
    const std::uint8_t* all = back_.data() + r.offset;
    const std::uint8_t* data = all + r.start;
    std::uint8_t* ours = memory()[i] + r.start;
    if (std::string wrong = spoilt(r, all); !wrong.empty()) return wrong;
    if (r.written != 0) {
      std::memcpy(ours, data, to_size(r.bytes));
    } else if (std::memcmp(ours, data, to_size(r.bytes)) != 0) {
      const std::uint8_t* first = std::mismatch(data, data + r.bytes, ours).first;
      return fmt::format("wrote to its input {} (byte {})", r.name, first - data);
    }
  }
  return std::string();
}

Result<double> DeviceImage::run(const Function& function, const CaseCall& call,
                                const as_threads* threads) {
  if (auto ok = upload(); !ok) return ok.error();
  std::vector<std::uint64_t> params((call.op().params_size + 7) / 8);
  std::memcpy(params.data(), call.params(), call.op().params_size);
  point_to_device(params.data(), pointers(call), regions(), room_);
  as_call context{};
  context.struct_size = sizeof(context);
  context.threads = threads;
  context.stream = device_->stream();
  as_error error{};
  if (auto ok = device_->begin(); !ok) return ok.error();
  const std::int32_t status = function(params.data(), &context, &error);
  auto time = device_->end();
  if (!time) return Error{AS_BAD_INPUT, "failed on the GPU: " + time.error().message, {}};
  if (status == AS_OK) return time;
  error.message[sizeof(error.message) - 1] = '\0';
  return bad_input(fmt::format("returned status {}: {}", status,
                               error.message[0] != '\0' ? error.message : "no message"));
}

}  // namespace attnscope
