"""What every experiment is made of: trials, their records, and how they are judged."""
