#include "engine/plugin/load.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <string_view>

#include "kernels/params/op_table.h"
#include "kernels/params/plugin.h"

namespace attnscope {
namespace {

bool is_word(std::string_view text) {
  return !text.empty() && text.size() < 48 &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '-';
         });
}

Error other_version(const std::string& library, const char* what, std::uint32_t theirs,
                    std::size_t their_size, std::uint32_t ours, std::size_t our_size) {
  return bad_input(fmt::format("plugin {}: built for version {} of the {} ({} bytes); this program "
                               "has version {} ({} bytes)",
                               library, theirs, what, their_size, ours, our_size),
                   "build it again with the attnscope_plugin.h of this program");
}

// Which ops take tensors on the GPU; none without the function.
Result<void> find_device_ops(const std::string& library, void* handle, LoadedPlugin* plugin) {
  void* symbol = ::dlsym(handle, AS_PLUGIN_DEVICE_SYMBOL);
  if (symbol == nullptr) return {};
  as_plugin_device_fn function = nullptr;
  std::memcpy(&function, &symbol, sizeof(function));
  const as_plugin_device* device = function();
  if (device == nullptr) return {};
  if (device->version != AS_PLUGIN_DEVICE_VERSION || device->struct_size != sizeof(*device)) {
    return other_version(library, "list of ops on the GPU", device->version, device->struct_size,
                         AS_PLUGIN_DEVICE_VERSION, sizeof(*device));
  }
  for (std::size_t op = 0; op < plugin->on_device.size(); ++op) {
    if (device->ops[op] == 0) continue;
    if (plugin->lane.ops[op] == nullptr) {
      return bad_input(
          fmt::format("plugin {}: {}() names {}, which its lane does not have", library,
                      AS_PLUGIN_DEVICE_SYMBOL, as_op_find(static_cast<std::int32_t>(op))->name),
          "set the entry of ops in its lane too");
    }
    plugin->on_device[op] = true;
  }
  return {};
}

}  // namespace

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
  if (lane->version != AS_LANE_VERSION || lane->struct_size != sizeof(as_lane)) {
    return other_version(library, "lane interface", lane->version, lane->struct_size,
                         AS_LANE_VERSION, sizeof(as_lane));
  }
  if (lane->name == nullptr || !is_word(lane->name)) {
    return bad_input(fmt::format("plugin {}: its lane has no name that is a word", library),
                     "letters, digits, _ . - and less than 48 of them");
  }
  for (const as_op_id op : {AS_OP_SCHEDULE, AS_OP_BLOCK_TABLES}) {
    if (lane->ops[op] == nullptr) continue;
    return bad_input(
        fmt::format("plugin {}: {} is carried out by the engine", library, as_op_find(op)->name),
        "leave it out of the lane");
  }
  if (std::all_of(std::begin(lane->ops), std::end(lane->ops),
                  [](as_op_fn f) { return f == nullptr; })) {
    return bad_input(fmt::format("plugin {}: its lane has no op", library),
                     "set at least one entry of ops");
  }
  LoadedPlugin plugin;
  plugin.lane = *lane;
  if (auto ok = find_device_ops(library, handle, &plugin); !ok) return ok.error();
  return plugin;
}

}  // namespace attnscope
