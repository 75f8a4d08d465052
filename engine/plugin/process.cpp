#include "engine/plugin/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <span>
#include <thread>
#include <vector>

#include "engine/model/numbers.h"
#include "engine/opcase/checked_blocks.h"
#include "engine/plugin/sparse_pages.h"
#include "kernels/params/row_format.h"

extern char** environ;

namespace attnscope {
namespace {

constexpr std::int64_t kRegionAlignment = 64;

Error no_environment(const std::string& what) {
  return {AS_NO_ENVIRONMENT, fmt::format("{}: {}", what, std::strerror(errno)), {}};
}

std::string signal_text(int number) {
  const char* name = ::sigabbrev_np(number);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", number);
}

enum class Heard { kReply, kNothing, kClosed };

Heard listen(int socket, double seconds, PluginReply* reply) {
  pollfd waiting{socket, POLLIN, 0};
  int ready = 0;
  do {
    ready = ::poll(&waiting, 1, static_cast<int>(seconds * 1000));
  } while (ready < 0 && errno == EINTR);
  if (ready == 0) return Heard::kNothing;
  const ssize_t got = ::recv(socket, reply, sizeof(*reply), 0);
  return got == static_cast<ssize_t>(sizeof(*reply)) ? Heard::kReply : Heard::kClosed;
}

}  // namespace

// The file that both processes map: regions one after the other.
class PluginProcess::Memory : public PluginMemory {
 public:
  ~Memory() override {
    clear();
    if (file_ >= 0) ::close(file_);
  }
  Result<void> create() {
    if (file_ >= 0) return {};
    file_ = ::memfd_create("attnscope-plugin", MFD_CLOEXEC);
    if (file_ < 0) return no_environment("plugin: no memory to share");
    return {};
  }
  int file() const { return file_; }

  // Ends what the last call had.
  void clear() {
    for (const Mapping& m : mappings_) ::munmap(m.memory, m.size);
    mappings_.clear();
    forget();
    end_ = 0;
  }

  // Data lies at the end of its pages, so that the first byte behind it is on the next one.
  Result<void*> allocate(std::int64_t bytes, const char* name, bool written) override {
    if (regions().size() == kMostRegions)
      return internal_error("a plugin call with too many tensors");
    PluginRegion region{};
    region.bytes = std::max<std::int64_t>(1, bytes);
    region.pages = as_round_up(region.bytes, kPluginPage) / kPluginPage;
    region.start =
        (region.pages * kPluginPage - region.bytes) / kRegionAlignment * kRegionAlignment;
    region.offset = end_;
    region.written = written ? 1 : 0;
    std::strncpy(region.name, name, sizeof(region.name) - 1);
    region.sparse = bytes > kWholeCache ? 1 : 0;
    const std::int64_t size = region.pages * kPluginPage;
    // What an earlier call left there.
    if (region.sparse != 0 && end_ < size_ &&
        ::fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, end_, size_ - end_) != 0) {
      return no_environment("plugin: shared memory");
    }
    if (end_ + size > size_) {
      if (::ftruncate(file_, end_ + size) != 0) return no_environment("plugin: shared memory");
      size_ = end_ + size;
    }
    void* memory = ::mmap(nullptr, static_cast<std::size_t>(size), PROT_READ | PROT_WRITE,
                          MAP_SHARED, file_, end_);
    if (memory == MAP_FAILED) return no_environment("plugin: shared memory");
    mappings_.push_back({memory, static_cast<std::size_t>(size)});
    end_ += size;
    add(region, static_cast<std::uint8_t*>(memory));
    return static_cast<std::uint8_t*>(memory) + region.start;
  }

  // Of sparse regions the blocks that rows lie in: filled as all memory is, then rows.
  void fill_sparse(const CaseCall& call, const OpCase& kept) {
    for (const as_tap_info& tap : kept.op.taps) {
      const auto it = kept.caches.find(tap.name);
      if (it == kept.caches.end() || is_whole(it->second)) continue;
      const StoredCache& stored = it->second;
      auto* const bytes = static_cast<std::uint8_t*>(call.cache(tap).data.data);
      const bool filled = reads_tap(tap, call.params());
      const std::uint8_t fill = filled ? 0xff : poison();
      each_checked_block(stored, [&](std::int64_t block, std::span<const std::int64_t>) {
        const std::int64_t first = block * stored.page_stride;
        std::memset(bytes + first, fill, to_size(stored.page_stride));
      });
      // Neighbours share pages with them.
      for (std::size_t i = 0; i < regions().size(); ++i) {
        if (memory()[i] + regions()[i].start != bytes) continue;
        each_extent(file_, regions()[i], [&](std::int64_t from, std::int64_t to) {
          std::memset(memory()[i] + from, fill, to_size(to - from));
        });
      }
      if (filled) put_stored_rows(stored, call.cache(tap));
    }
  }

  // Names the first tensor around which something was written; empty = none.
  std::string first_spoilt() const {
    for (std::size_t i = 0; i < regions().size(); ++i) {
      if (std::string wrong = spoilt(regions()[i], memory()[i]); !wrong.empty()) return wrong;
    }
    return {};
  }

 private:
  struct Mapping {
    void* memory;
    std::size_t size;
  };
  int file_ = -1;
  std::int64_t size_ = 0, end_ = 0;
  std::vector<Mapping> mappings_;
};

namespace {

std::string touched_text(const PluginReply& reply, const PluginRegion& region, bool on_device) {
  const char* how = reply.write == 1 ? "wrote" : reply.write == 0 ? "read" : "touched";
  if (on_device)
    return fmt::format("{} {}, which lies on the GPU, from the host", how, region.name);
  if (reply.offset >= 0 && reply.offset < region.bytes && region.sparse != 0) {
    return fmt::format("{} byte {} of {}, where no row of the call lies", how, reply.offset,
                       region.name);
  }
  if (reply.offset >= 0 && reply.offset < region.bytes) {
    return fmt::format("wrote to its input {} (byte {})", region.name, reply.offset);
  }
  if (reply.offset < 0) {
    return fmt::format("{} byte {} before {}", how, -reply.offset, region.name);
  }
  return fmt::format("{} beyond the end of {}: byte {} of {}", how, region.name, reply.offset,
                     region.bytes);
}

}  // namespace

PluginProcess::PluginProcess(std::string program, std::string library, double seconds_limit)
    : program_(std::move(program)),
      library_(std::move(library)),
      limit_(seconds_limit),
      memory_(std::make_unique<Memory>()) {}

PluginProcess::~PluginProcess() { end(); }

void PluginProcess::end() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  pid_ = -1;
  attached_ = nullptr;
}

std::string PluginProcess::how_it_ended() {
  attached_ = nullptr;
  ::close(socket_);
  socket_ = -1;
  int status = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (::waitpid(pid_, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > end) {  // it closed what is not its own, and goes on
      this->end();
      return "closed its connection and was ended";
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  pid_ = -1;
  if (WIFSIGNALED(status)) return "was ended by " + signal_text(WTERMSIG(status));
  return fmt::format("ended its process with exit code {}", WEXITSTATUS(status));
}

Result<void> PluginProcess::begin() {
  if (auto ok = memory_->create(); !ok) return ok;
  int sockets[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) {
    return no_environment("plugin: no socket");
  }
  // Away from the numbers that the child gets them under.
  const int theirs = ::fcntl(sockets[1], F_DUPFD_CLOEXEC, 16);
  const int file = ::fcntl(memory_->file(), F_DUPFD_CLOEXEC, 16);
  ::close(sockets[1]);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, theirs, kPluginSocket);
  ::posix_spawn_file_actions_adddup2(&actions, file, kPluginMemory);
  char* arguments[] = {program_.data(), library_.data(), nullptr};
  const int failed = ::posix_spawn(&pid_, program_.c_str(), &actions, nullptr, arguments, environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(theirs);
  ::close(file);
  socket_ = sockets[0];
  if (failed == 0) return {};
  ::close(socket_);
  socket_ = pid_ = -1;
  return Error{AS_NO_ENVIRONMENT,
               fmt::format("plugin: {} cannot be started: {}", program_, std::strerror(failed)),
               "it is built and installed beside attnscope; or use --in-process"};
}

Result<PluginInfo> PluginProcess::start() {
  if (pid_ > 0) return info_;
  if (auto ok = begin(); !ok) return ok.error();
  // A limit that is meant for calls is not one for the loader of a busy machine.
  const double loading = std::max(limit_, 10.0);
  PluginReply hello{};
  switch (listen(socket_, loading, &hello)) {
    case Heard::kClosed:
      return bad_input(fmt::format("plugin {}: {} while it was loaded", library_, how_it_ended()),
                       "look at what its constructors do");
    case Heard::kNothing:
      end();
      return bad_input(fmt::format("plugin {}: was not loaded within {:g} s", library_, loading));
    case Heard::kReply:
      break;
  }
  if (hello.word != PluginWord::kHello) {
    end();
    if (hello.word == PluginWord::kCannot) {
      return Error{static_cast<as_status>(hello.status), hello.text, {}};
    }
    return bad_input(fmt::format("plugin {}: crashed ({}) while it was loaded", library_,
                                 signal_text(hello.signal)),
                     "look at what its constructors do");
  }
  info_.name = hello.name;
  info_.description = hello.text;
  info_.ops = hello.ops;
  info_.on_device = hello.device_ops;
  return info_;
}

Result<PluginReply> PluginProcess::ask(const PluginRequest& request, double seconds) {
  PluginReply reply{};
  if (::send(socket_, &request, sizeof(request), MSG_NOSIGNAL) < 0) {
    return bad_input(how_it_ended());
  }
  switch (listen(socket_, seconds, &reply)) {
    case Heard::kNothing:
      end();
      return bad_input(fmt::format("did not return within {:g} s and was ended", seconds));
    case Heard::kClosed:
      return bad_input(how_it_ended());
    case Heard::kReply:
      break;
  }
  if (reply.word == PluginWord::kDone) return reply;
  end();
  if (reply.word == PluginWord::kDevice) {
    return bad_input(fmt::format("failed on the GPU: {}", reply.text));
  }
  std::string what = fmt::format("crashed ({})", signal_text(reply.signal));
  if (reply.word == PluginWord::kTouched && reply.region >= 0 && reply.region < request.regions) {
    what += ": it " + touched_text(reply, request.region[reply.region],
                                   request.ask == PluginAsk::kCallOnDevice);
  }
  return bad_input(what);
}

Result<void> PluginProcess::attach_room() {
  if (image_->room() == attached_) return {};
  auto handle = image_->device().share(image_->room());
  if (!handle) return handle.error();
  auto request = std::make_unique<PluginRequest>();
  request->ask = PluginAsk::kAttach;
  request->handle = *handle;
  // The first time the process opens the GPU, which takes its time.
  if (auto reply = ask(*request, std::max(limit_, 30.0)); !reply) return reply.error();
  attached_ = image_->room();
  image_->release_outgrown();
  return {};
}

Result<void> PluginProcess::attach(DeviceImage* image) {
  image_ = image;
  auto ok = image_->make_room(1);
  if (ok) ok = attach_room();
  if (ok) return ok;
  return Error{AS_NO_ENVIRONMENT,
               fmt::format("plugin {}: its process cannot have the GPU's memory: {}", library_,
                           ok.error().message),
               "with --in-process it needs no process of its own"};
}

void PluginProcess::set_poison(std::uint8_t byte) {
  memory_->set_poison(byte);
  if (image_ != nullptr) image_->set_poison(byte);
}

Result<double> PluginProcess::call(as_op_id op, const void* params, int threads) {
  if (auto ok = start(); !ok) return ok.error();
  auto kept = keep_case(*find_case_op(op), params, {});
  if (!kept) return kept.error();
  const bool on_device = info_.on_device[op];
  memory_->clear();
  if (on_device) image_->clear();
  PluginMemory& memory = on_device ? static_cast<PluginMemory&>(*image_) : *memory_;
  auto call = CaseCall::make(*kept, memory);
  if (!call) return call.error();
  if (!on_device) memory_->fill_sparse(*call, *kept);
  static thread_local PluginRequest request;
  request = {};
  request.ask = on_device ? PluginAsk::kCallOnDevice : PluginAsk::kCall;
  request.op = op;
  request.threads = threads;
  request.params_size = static_cast<std::int32_t>(call->op().params_size);
  if (call->op().params_size > sizeof(request.params)) {
    return internal_error("a params struct that is too large for a plugin");
  }
  std::memcpy(request.params, call->params(), call->op().params_size);
  for (const PluginPointer& pointer : memory.pointers(*call)) {
    request.pointer[request.pointers++] = pointer;
  }
  for (const PluginRegion& region : memory.regions()) {
    request.region[request.regions++] = region;
  }
  if (on_device) {
    auto ok = image_->upload();
    if (ok) ok = attach_room();
    if (!ok) return Error{ok.error().code, "was not called: " + ok.error().message, {}};
  }
  auto reply = ask(request, limit_);
  if (!reply) return reply.error();
  if (reply->status != AS_OK) {
    return bad_input(fmt::format("returned status {}: {}", reply->status,
                                 reply->text[0] != '\0' ? reply->text : "no message"));
  }
  auto wrong = on_device ? image_->download() : Result<std::string>(memory_->first_spoilt());
  if (!wrong) return wrong.error();
  if (wrong->empty()) *wrong = strays(*call, *kept, memory.poison());
  if (!wrong->empty()) {
    end();
    return bad_input(*wrong);
  }
  copy_outputs(*call, const_cast<void*>(params));
  return reply->microseconds;
}

}  // namespace attnscope
