// What the two processes of a plugin say to each other: one message a datagram over a socket. The
// tensors of an op on the host lie in a file in memory that both map; the child puts every tensor
// between pages that nobody may touch, and inputs are read-only there. Those of an op on the GPU
// lie in memory of the parent that the child opens by its handle, once (kAttach).
#pragma once

#include <cstdint>

#include "engine/plugin/load.h"
#include "engine/plugin/plugin_device.h"
#include "kernels/params/lane_table.h"

namespace attnscope {

inline constexpr int kPluginSocket = 3, kPluginMemory = 4;  // descriptors of the child
inline constexpr std::int64_t kPluginPage = 4096;
inline constexpr int kMostRegions = 32;
inline constexpr std::uint8_t kCanary = 0xcb;  // around the data, up to the ends of its pages

struct PluginRegion {
  std::int64_t offset;  // in the file, of the first page
  std::int64_t pages;
  std::int64_t start;  // of the data, from the first page
  std::int64_t bytes;
  std::int32_t written;  // by the op
  std::int32_t sparse;   // only pages that the file holds are there, none else may be touched
  char name[32];         // of the tap
};

// A pointer of the params struct and the region it points to.
struct PluginPointer {
  std::int32_t offset;
  std::int32_t region;
};

enum class PluginAsk : std::int32_t {
  kCall = 1,
  kCallOnDevice = 2,  // regions lie in the memory that is open
  kAttach = 3,        // opens the memory of `handle` in the place of what was open
};

struct PluginRequest {
  PluginAsk ask;
  std::int32_t op;
  std::int32_t threads;
  std::int32_t params_size;
  std::int32_t regions, pointers;
  PluginDevice::Handle handle;
  PluginRegion region[kMostRegions];
  PluginPointer pointer[kMostRegions];
  unsigned char params[kMostPluginParams];
};

enum class PluginWord : std::int32_t {
  kHello = 1,    // loaded: name, description, ops
  kCannot = 2,   // it cannot be loaded: text
  kDone = 3,     // the call returned: status, microseconds, text; memory is open
  kTouched = 4,  // a byte outside of a tensor, or an input written to: region, offset; the end
  kCrashed = 5,  // another signal; the end
  kDevice = 6,   // the GPU cannot be used (any more): text; the end
};

struct PluginReply {
  PluginWord word;
  std::int32_t status;  // as_status of the call
  double microseconds;
  std::int32_t signal;
  std::int32_t region;
  std::int64_t offset;  // of the byte, from the start of the data
  std::int32_t write;   // 1 written, 0 read, -1 unknown
  std::int32_t reserved;
  PerOp<bool> ops;
  PerOp<bool> device_ops;
  char name[64];
  char text[768];
};

}  // namespace attnscope
