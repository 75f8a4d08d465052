#include "engine/plugin/load.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <string_view>
#include <vector>

#include "kernels/params/head.h"
#include "kernels/params/op_table.h"
#include "kernels/params/plugin.h"

namespace attnscope {
namespace {

constexpr const char* kBuildAgain = "build it again with the attnscope_plugin.h of this program";

// Version 1 of the lane interface, and what a second function of the library said of the GPU: an
// entry for each op that its header had, by id. It said no sizes of structs: they were the first.
struct LaneOfVersion1 {
  std::uint32_t struct_size, version;
  const char* name;
  const char* description;
  as_op_fn ops[30];
};
struct DeviceOpsOfVersion1 {
  std::uint32_t struct_size, version;
  std::uint8_t ops[30];
};
constexpr const char* kDeviceSymbol = "attnscope_device";

bool is_word(std::string_view text) {
  return !text.empty() && text.size() < 48 &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '-';
         });
}

Error other_version(const std::string& library, const char* what, std::uint32_t theirs,
                    const char* ours) {
  return bad_input(fmt::format("plugin {}: built for version {} of the {}; this program reads {}",
                               library, theirs, what, ours),
                   kBuildAgain);
}

Error too_short(const std::string& library, const std::string& what, std::size_t theirs,
                std::size_t least) {
  return bad_input(fmt::format("plugin {}: {} of {} bytes; the shortest that was released has {}",
                               library, what, theirs, least),
                   "set its size by sizeof");
}

// How many entries of a table with a head fit into the size that it says.
std::size_t entries(std::size_t struct_size, std::size_t head, std::size_t entry,
                    std::size_t most) {
  return std::min(most, (struct_size - head) / entry);
}

Result<void> read_version_1(const std::string& library, const LaneOfVersion1& lane, void* handle,
                            LoadedPlugin* plugin) {
  constexpr std::size_t kHead = offsetof(LaneOfVersion1, ops);
  if (lane.struct_size < kHead) return too_short(library, "an as_lane", lane.struct_size, kHead);
  const std::size_t count = entries(lane.struct_size, kHead, sizeof(as_op_fn), std::size(lane.ops));
  for (std::size_t i = 0; i < count; ++i) {
    const as_op_info& info = *as_op_at(static_cast<std::int32_t>(i));
    plugin->ops[info.id] = {lane.ops[i], info.first_size, false};
  }
  void* symbol = ::dlsym(handle, kDeviceSymbol);
  if (symbol == nullptr) return {};
  const DeviceOpsOfVersion1* (*function)() = nullptr;
  std::memcpy(&function, &symbol, sizeof(function));
  const DeviceOpsOfVersion1* device = function();
  if (device == nullptr) return {};
  if (device->version != 1) {
    return other_version(library, "list of ops on the GPU", device->version, "version 1");
  }
  constexpr std::size_t kDeviceHead = offsetof(DeviceOpsOfVersion1, ops);
  if (device->struct_size < kDeviceHead) {
    return too_short(library, "an as_plugin_device", device->struct_size, kDeviceHead);
  }
  const std::size_t named = entries(device->struct_size, kDeviceHead, 1, std::size(device->ops));
  for (std::size_t i = 0; i < named; ++i) {
    if (device->ops[i] == 0) continue;
    const as_op_info& info = *as_op_at(static_cast<std::int32_t>(i));
    if (plugin->ops[info.id].run == nullptr) {
      return bad_input(fmt::format("plugin {}: {}() names {}, which its lane does not have",
                                   library, kDeviceSymbol, info.name),
                       "set the entry of ops in its lane too");
    }
    plugin->ops[info.id].on_device = true;
  }
  return {};
}

Result<void> read_op(const std::string& library, const as_lane_op& entry, const as_op_info& info,
                     LoadedPlugin* plugin) {
  if (entry.run == nullptr) {
    return bad_input(fmt::format("plugin {}: its {} has no function", library, info.name),
                     "leave out of the list what the lane does not have");
  }
  if (plugin->ops[info.id].run != nullptr) {
    return bad_input(fmt::format("plugin {}: its lane has {} twice", library, info.name));
  }
  if (entry.version != AS_PARAMS_VERSION) {
    return other_version(library, fmt::format("params of {}", info.name).c_str(), entry.version,
                         "version 1");
  }
  if (entry.params_size < info.first_size) {
    return too_short(library, fmt::format("its {} takes params", info.name), entry.params_size,
                     info.first_size);
  }
  if (entry.params_size > kMostPluginParams) {
    return bad_input(fmt::format("plugin {}: its {} takes params of {} bytes; at most {}", library,
                                 info.name, entry.params_size, kMostPluginParams));
  }
  plugin->ops[info.id] = {entry.run, entry.params_size, entry.on_device != 0};
  return {};
}

Result<void> read_version_2(const std::string& library, const as_lane& lane, LoadedPlugin* plugin) {
  if (lane.struct_size < sizeof(as_lane)) {
    return too_short(library, "an as_lane", lane.struct_size, sizeof(as_lane));
  }
  if (lane.num_ops > 0 && lane.op_size < sizeof(as_lane_op)) {
    return too_short(library, "an as_lane_op", lane.op_size, sizeof(as_lane_op));
  }
  std::vector<std::int32_t> unknown;
  const auto* at = reinterpret_cast<const std::uint8_t*>(lane.ops);
  for (std::uint32_t i = 0; at != nullptr && i < lane.num_ops; ++i, at += lane.op_size) {
    as_lane_op entry{};  // of a longer one what we know
    std::memcpy(&entry, at, sizeof(entry));
    const as_op_info* info = as_op_find(entry.id);
    if (info == nullptr) {
      unknown.push_back(entry.id);
      continue;
    }
    if (auto ok = read_op(library, entry, *info, plugin); !ok) return ok;
  }
  if (plugin->num_ops() == 0 && !unknown.empty()) {
    return bad_input(fmt::format("plugin {}: this program knows none of its ops: {}", library,
                                 fmt::join(unknown, ", ")),
                     "it was built for a newer attnscope");
  }
  return {};
}

}  // namespace

int LoadedPlugin::num_ops() const {
  return static_cast<int>(
      std::ranges::count_if(ops, [](const PluginOp& op) { return op.run != nullptr; }));
}

std::int32_t LoadedPlugin::call(std::int32_t id, const void* params, const as_call* call,
                                as_error* error) const {
  const PluginOp& theirs = ops[id];
  const std::size_t ours = as_op_find(id)->params_size;
  if (theirs.params_size == ours) return theirs.run(params, call, error);
  const auto* bytes = static_cast<const std::uint8_t*>(params);
  for (std::size_t i = theirs.params_size; i < ours; ++i) {
    if (bytes[i] == 0) continue;
    const std::string text =
        fmt::format("it was built with params of {} bytes, and byte {} of this call's is set; {}",
                    theirs.params_size, i, kBuildAgain);
    error->code = AS_BAD_INPUT;
    std::strncpy(error->message, text.c_str(), sizeof(error->message) - 1);
    return AS_BAD_INPUT;
  }
  alignas(16) std::uint8_t own[kMostPluginParams] = {};
  std::memcpy(own, params, std::min<std::size_t>(ours, theirs.params_size));
  reinterpret_cast<as_params_head*>(own)->struct_size = theirs.params_size;
  return theirs.run(own, call, error);
}

Result<LoadedPlugin> load_plugin(const std::string& library) {
  // A name without a slash would be looked for in the system's folders.
  const std::string path = library.find('/') == std::string::npos ? "./" + library : library;
  void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return bad_input(fmt::format("plugin {}: cannot be loaded: {}", library, ::dlerror()),
                     "build it as a shared library (-shared -fPIC) and link what it uses");
  }
  void* symbol = ::dlsym(handle, AS_PLUGIN_SYMBOL);
  if (symbol == nullptr) {
    return bad_input(fmt::format("plugin {}: exports no {}()", library, AS_PLUGIN_SYMBOL),
                     "declare it as AS_PLUGIN_EXPORT const as_lane* attnscope_lane(void)");
  }
  as_plugin_fn function = nullptr;
  std::memcpy(&function, &symbol, sizeof(function));
  const as_lane* lane = function();
  if (lane == nullptr) {
    return bad_input(fmt::format("plugin {}: {}() returns NULL", library, AS_PLUGIN_SYMBOL));
  }
  // Both versions begin with sizes, names and the description.
  if (lane->version != 1 && lane->version != AS_LANE_VERSION) {
    return other_version(library, "lane interface", lane->version, "versions 1 and 2");
  }
  if (lane->name == nullptr || !is_word(lane->name)) {
    return bad_input(fmt::format("plugin {}: its lane has no name that is a word", library),
                     "letters, digits, _ . - and less than 48 of them");
  }
  LoadedPlugin plugin;
  plugin.name = lane->name;
  if (lane->description != nullptr) plugin.description = lane->description;
  auto read =
      lane->version == 1
          ? read_version_1(library, *reinterpret_cast<const LaneOfVersion1*>(lane), handle, &plugin)
          : read_version_2(library, *lane, &plugin);
  if (!read) return read.error();
  for (int i = 0; const as_op_info* info = as_op_at(i); ++i) {
    if ((info->traits & AS_BY_ENGINE) == 0 || plugin.ops[info->id].run == nullptr) continue;
    return bad_input(fmt::format("plugin {}: {} is carried out by the engine", library, info->name),
                     "leave it out of the lane");
  }
  if (plugin.num_ops() == 0) {
    return bad_input(fmt::format("plugin {}: its lane has no op", library),
                     "name at least one in its list");
  }
  return plugin;
}

}  // namespace attnscope
