"""The demo: a preset of the drills, its report and its picture."""
