#include "app/text/interrupt.h"

#include <signal.h>

#include <atomic>

namespace attnscope {
namespace {

std::atomic<int> the_signal{0};
static_assert(std::atomic<int>::is_always_lock_free, "it is written by a signal handler");
std::atomic<bool> is_early{false};

void note(int number) { the_signal = number; }

}  // namespace

void catch_interrupts() {
  the_signal = 0;
  is_early = false;
  for (const int number : {SIGINT, SIGTERM}) {
    struct sigaction action {};
    if (::sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN) continue;
    action = {};
    action.sa_handler = note;
    ::sigemptyset(&action.sa_mask);
    action.sa_flags = static_cast<int>(SA_RESTART | SA_RESETHAND);
    ::sigaction(number, &action, nullptr);
  }
}

int interrupted() { return the_signal; }

std::string interrupt_name() {
  const int number = the_signal;
  return number == 0 ? "" : number == SIGINT ? "SIGINT" : "SIGTERM";
}

void ended_early() { is_early = true; }

int exit_code_of_interrupt() { return is_early ? 128 + the_signal : 0; }

}  // namespace attnscope
