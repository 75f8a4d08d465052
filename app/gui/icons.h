// Code points of the icon font (Font Awesome 6 solid) that the app uses, and the plain letter that
// stands for each where the font is missing.
#pragma once

#include <array>

namespace attnscope::gui::icon {

inline constexpr const char* kCheck = "\xef\x80\x8c";         // f00c check
inline constexpr const char* kCross = "\xef\x80\x8d";         // f00d xmark
inline constexpr const char* kApprox = "\xe2\x89\x88";        // 2248, of the text faces
inline constexpr const char* kStairs = "\xee\x8a\x89";        // e289 stairs: quantisation
inline constexpr const char* kTie = "\xef\x89\x8e";           // f24e scale-balanced
inline constexpr const char* kMinus = "\xef\x81\xa8";         // f068 minus
inline constexpr const char* kQuestion = "\x3f";              // ?
inline constexpr const char* kLayers = "\xef\x97\xbd";        // f5fd layer-group
inline constexpr const char* kPlay = "\xef\x81\x8b";          // f04b play
inline constexpr const char* kStop = "\xef\x81\x8d";          // f04d stop
inline constexpr const char* kForwardStep = "\xef\x81\x91";   // f051 forward-step
inline constexpr const char* kBackwardStep = "\xef\x81\x88";  // f048 backward-step
inline constexpr const char* kForward = "\xef\x81\x8e";       // f04e forward
inline constexpr const char* kBackward = "\xef\x81\x8a";      // f04a backward
inline constexpr const char* kFastForward = "\xef\x81\x90";   // f050 forward-fast
inline constexpr const char* kFastBackward = "\xef\x81\x89";  // f049 backward-fast
inline constexpr const char* kAngleLeft = "\xef\x84\x84";     // f104 angle-left
inline constexpr const char* kAngleRight = "\xef\x84\x85";    // f105 angle-right
inline constexpr const char* kAngleDown = "\xef\x84\x87";     // f107 angle-down
inline constexpr const char* kAngleUp = "\xef\x84\x86";       // f106 angle-up
inline constexpr const char* kBug = "\xef\x86\x88";           // f188 bug
inline constexpr const char* kPlug = "\xef\x87\xa6";          // f1e6 plug
inline constexpr const char* kSearch = "\xef\x80\x82";        // f002 magnifying-glass
inline constexpr const char* kCopy = "\xef\x83\x85";          // f0c5 copy
inline constexpr const char* kFolder = "\xef\x81\xbc";        // f07c folder-open
inline constexpr const char* kSave = "\xef\x83\x87";          // f0c7 floppy-disk
inline constexpr const char* kUndo = "\xef\x8b\xaa";          // f2ea rotate-left
inline constexpr const char* kRedo = "\xef\x8b\xb9";          // f2f9 rotate-right
inline constexpr const char* kWarning = "\xef\x81\xb1";       // f071 triangle-exclamation
inline constexpr const char* kInfo = "\xef\x81\x9a";          // f05a circle-info
inline constexpr const char* kSpinner = "\xef\x84\x90";       // f110 spinner
inline constexpr const char* kRecord = "\xef\x84\x91";        // f111 circle

struct Letter {
  unsigned code;
  char letter;
};
inline constexpr std::array<Letter, 31> kLetters = {{
    {0xf00c, 'v'}, {0xf00d, 'x'}, {0x2248, '~'}, {0xe289, 'q'}, {0xf24e, 't'}, {0xf068, '-'},
    {0xf5fd, 'L'}, {0xf04b, '>'}, {0xf04d, 'o'}, {0xf051, '>'}, {0xf048, '<'}, {0xf04e, '>'},
    {0xf04a, '<'}, {0xf050, '}'}, {0xf049, '{'}, {0xf104, '<'}, {0xf105, '>'}, {0xf188, 'b'},
    {0xf002, '?'}, {0xf0c5, 'c'}, {0xf07c, 'f'}, {0xf0c7, 's'}, {0xf2ea, 'u'}, {0xf2f9, 'r'},
    {0xf071, '!'}, {0xf05a, 'i'}, {0xf110, '.'}, {0xf111, '*'}, {0xf107, 'v'}, {0xf106, '^'},
    {0xf1e6, 'p'},
}};

}  // namespace attnscope::gui::icon
