// A call laid out on the GPU: the same tensors on the host, where CaseCall fills them in, and in
// one piece of memory on the device, with 4 KiB around each that must stay as it is.
//
//   image.clear();
//   auto call = CaseCall::make(kept, image);
//   auto time = image.run(function, *call, threads);   // or upload(), and somebody else calls
//   auto wrong = image.download();                     // outputs are in `call` now
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/plugin/regions.h"

namespace attnscope {

class DeviceImage : public PluginMemory {
 public:
  explicit DeviceImage(std::shared_ptr<PluginDevice> device) : device_(std::move(device)) {}
  ~DeviceImage() override;
  DeviceImage(const DeviceImage&) = delete;
  DeviceImage& operator=(const DeviceImage&) = delete;

  PluginDevice& device() { return *device_; }
  // Ends the last call.
  void clear();
  Result<void*> allocate(std::int64_t bytes, const char* name, bool written) override;

  // Memory on the device; kept from call to call until one needs more. What it was before is
  // released by release_outgrown(), when no other process has it open any more.
  std::uint8_t* room() const { return room_; }
  Result<void> make_room(std::size_t bytes);
  void release_outgrown();

  // All of the call to the device; it is there on return.
  Result<void> upload();
  // Everything back, outputs into the host's tensors. What was written beside them, or to an input,
  // in words; empty = nothing.
  Result<std::string> download();
  // An as_op_fn, or what stands before one.
  using Function = std::function<std::int32_t(const void*, const as_call*, as_error*)>;
  // Calls a function of this process; microseconds between two events around it.
  Result<double> run(const Function& function, const CaseCall& call, const as_threads* threads);

 private:
  std::shared_ptr<PluginDevice> device_;
  std::vector<std::unique_ptr<std::uint8_t[]>> host_;
  std::int64_t end_ = 0;  // bytes of all regions
  std::uint8_t* room_ = nullptr;
  std::size_t capacity_ = 0;
  std::vector<void*> outgrown_;
  std::vector<std::uint8_t> back_;  // what came back
};

}  // namespace attnscope
