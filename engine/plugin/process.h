// A plugin in a process of its own: what it does there harms nobody here. Crashes, endless loops,
// bytes touched outside of tensors, inputs written to, a GPU that fails: each is an error that says
// so.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "engine/plugin/device_image.h"
#include "kernels/params/lane_table.h"
#include "kernels/params/result.h"

namespace attnscope {

struct PluginInfo {
  std::string name, description;
  PerOp<bool> ops;
  PerOp<bool> on_device;  // of these: tensors lie on the GPU
};

class PluginProcess {
 public:
  // program: the executable that calls run_plugin_child().
  PluginProcess(std::string program, std::string library, double seconds_limit);
  ~PluginProcess();
  PluginProcess(const PluginProcess&) = delete;
  PluginProcess& operator=(const PluginProcess&) = delete;

  // Starts the process unless it runs.
  Result<PluginInfo> start();
  // For ops on the GPU, once the process has started: opens the memory of `image` there, which must
  // outlive this. AS_NO_ENVIRONMENT where processes cannot share it.
  Result<void> attach(DeviceImage* image);
  // What outputs hold before a call, 0xff unless said.
  void set_poison(std::uint8_t byte);
  // One call with the tensors of `params`, whose outputs it fills when all went well. After an
  // error other than a status that the kernel returned the process is gone; the next call starts it
  // anew.
  Result<double> call(as_op_id op, const void* params, int threads);  // microseconds of the kernel

 private:
  class Memory;
  Result<void> begin();
  void end();
  // One message there and its answer. What went wrong in words once the process is gone.
  Result<PluginReply> ask(const PluginRequest& request, double seconds);
  Result<void> attach_room();
  // Name of what went wrong, once the process does not answer any more.
  std::string how_it_ended();

  std::string program_, library_;
  double limit_;
  pid_t pid_ = -1;
  int socket_ = -1;
  std::unique_ptr<Memory> memory_;
  DeviceImage* image_ = nullptr;
  const std::uint8_t* attached_ = nullptr;  // room of image_ that the process has open
  PluginInfo info_;
};

}  // namespace attnscope
